"""PyTorch's passes on two ranks through the whole suite, under each launcher that forwards their output.

Prevents: rows of two ranks that split one another on their way (torchrun's ranks share a pipe, mpirun forwards parts of lines), a rank
that is profiled but whose rows are lost, ranks that wait for each other because their warm-ups differ in length.
"""

import pandas as pd
import pytest

from runner.results import tables

pytestmark = pytest.mark.usefixtures("nothing_left")

STRATEGIES = {
    "ddp": ("--strategy=ddp",),
    "gloo": ("--strategy=horovod", "--controller=gloo"),
    "mpi": ("--strategy=horovod", "--controller=mpi"),
}
ITERATIONS = 5
# LeNet has two convolutions, and each rank trains all of it.
FORWARD = 2 * ITERATIONS


@pytest.mark.parametrize("words", STRATEGIES.values(), ids=STRATEGIES)
def test_all_rows_of_both_ranks_arrive(words, dlscale, tmp_path):
    flags = ("--framework=pytorch", "--model=lenet", "--batch=8", "--workers=2", "--profile=kernels")
    flags += ("--techniques=fused-optimizer",)  # one operator a step
    done = dlscale("bench", *flags, *words, f"--profile-iterations={ITERATIONS}", out=tmp_path, only="profiled")
    assert done.code == 0, done.stderr
    (record,) = done.records
    table = pd.DataFrame(tables.read(tmp_path / record.run_id, "kernels", nodes={}))
    for rank in (0, 1):
        mine = table[table["rank"] == rank]
        operators = mine[mine["kind"] == "op"]
        assert (operators["name"] == "aten::mkldnn_convolution").sum() == FORWARD
        assert (operators["name"] == "aten::_fused_sgd_").sum() == ITERATIONS
        assert operators["op"].is_unique
        assert set(operators["parent"].dropna()) <= set(operators["op"])
        assert (
            list(mine.loc[mine["kind"] == "region", "name"])
            == [*("input", "optimizer", "forward", "backward", "optimizer")] * ITERATIONS
        )
    assert record.profile.source == "torch.profiler"
