"""Every multi-node strategy, on two nodes of a Slurm job queued by sbatch, and on four: each container is a Slurm step.

Prevents: a script that sbatch rejects, steps that each train their own model, a job whose "network" is the loopback, a rank on a node that
was not counted or sampled.
"""

import pytest
from commands import Ended
from hosts.test_strategies_on_hosts import PAIRS
from numerics import GLOBAL_BATCH, ITERATIONS, TRAINING, check_losses, check_shared_losses
from on_slurm import DLSCALE, check_crossed, ended, left, started

# All pairs except PyTorch's Horovod, which starts like MXNet's.
ON_SLURM = [pair for pair in PAIRS if (pair.framework, pair.strategy) != ("pytorch", "horovod")]


@pytest.fixture
def job(cluster, tmp_path):
    """Run a command to completion as its own job, by the script that the suite writes for sbatch."""

    def run(*words, environment):
        script, log = tmp_path / "job.sh", tmp_path / "log"
        flags = ("--cluster=slurm", f"--out={tmp_path}", "--format=sbatch")
        script.write_text(cluster.ask(DLSCALE, "plan", *words, *flags))
        process = started(cluster, "sbatch", "--wait", f"--output={log}", str(script), environment=environment)
        code, said, errors = ended(process)
        assert left(cluster) == []
        return Ended(code, said, errors + log.read_text(), out=tmp_path)

    return run


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("pair", ON_SLURM, ids=str)
def test_nodes_of_a_job_hold_one_model_and_its_gradients_cross_their_network(pair, job, sif, one_baseline, tmp_path):
    engine = ("--engine=apptainer", sif) if pair.strategy == "horovod" else ("--engine=venv", None)
    words = (f"--framework={pair.framework}", f"--strategy={pair.strategy}", *pair.settings, engine[0])
    scale = (f"--nodes={pair.nodes}", f"--workers={pair.nodes}")
    with one_baseline(pair.framework, engine[0], pair.nodes, out=tmp_path):
        done = job(*words, *scale, *TRAINING, environment=engine[1])
        assert done.code == 0, done.stderr
    record = done.record(pair.nodes)
    assert record.engine_details.confined == (engine[0] == "--engine=apptainer")
    check_crossed(record, *(f"n{number}" for number in range(1, pair.nodes + 1)))
    sent = sum(record.transport.sent_bytes_per_step.values())
    assert sent == pytest.approx(record.transport.expected_bytes_per_step, rel=0.15)
    assert [(placed.node, placed.devices) for placed in record.trial.placement] == [
        (f"n{number}", 1) for number in range(1, pair.nodes + 1)
    ]
    assert record.measurement.samples == ITERATIONS * GLOBAL_BATCH
    check_shared_losses(record, devices=pair.nodes, synchronous=pair.synchronous)
    check_losses(done.record(1), record, synchronous=pair.synchronous)
