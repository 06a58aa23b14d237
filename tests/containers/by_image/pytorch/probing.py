"""Inside the image: the probe measures correct exchanges and changes no loss, on two ranks and on a single one.

Prevents a probe that shifts the random numbers, gradients or buffers of its job; a wrong sum; a wrong
result that only another rank sees.
"""

import tempfile
from pathlib import Path

from probed import OPERATIONS, check, named, program, run_for_events
from programs import torchrun

PROGRAM = (*program("pytorch"), "--devices=1")

check(
    lambda *more: run_for_events(*PROGRAM, "--strategy=ddp", *more, ranks=torchrun(2)),
    processes=2,
    operation="all_reduce",
    offered=OPERATIONS,
)
check(lambda *more: run_for_events(*PROGRAM, "--strategy=single", *more), processes=1, operation=None)

# A library that corrupts one element on one rank, but not on the rank that reports.
BROKEN = f"""
import runpy, sys
from torch import distributed
right = distributed.reduce_scatter_tensor
def wrong(result, sent, **how):
    right(result, sent, **how)
    result[3] += distributed.get_rank()
distributed.reduce_scatter_tensor = wrong
sys.path.insert(0, {str(Path(PROGRAM[0]).parent)!r})
runpy.run_path({PROGRAM[0]!r}, run_name="__main__")
"""
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder) / "broken_pytorch.py"
    script.write_text(BROKEN)
    found = named(
        run_for_events(str(script), *PROGRAM[1:], "--strategy=ddp", "--probe=65536", ranks=torchrun(2)), "bandwidth"
    )
assert [(event["operation"], event["wrong"]) for event in found] == [
    *(("all_reduce", 0), ("all_gather", 0)),
    *(("reduce_scatter", 1), ("all_to_all", 0)),
]
