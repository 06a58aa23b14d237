"""Every strategy that goes beyond a node, on two nodes of one Slurm job, and on four: each container a step.

Prevents: steps that train a model each, a job whose "network" is the loopback, a rank on a node that nobody counted or looked at.
"""

import pytest
from commands import Ended
from hosts.test_strategies_on_hosts import PAIRS
from numerics import GLOBAL_BATCH, ITERATIONS, TRAINING, check_losses, check_shared_losses
from on_slurm import DLSCALE, check_crossed, ended, left, started

# All but the Horovod of PyTorch, which is started as that of MXNet.
ON_SLURM = [pair for pair in PAIRS if (pair.framework, pair.strategy) != ("pytorch", "horovod")]


@pytest.fixture(scope="module")
def job(cluster):
    """Run a command to its end as a shell of `salloc` on all nodes would; one job for all strategies."""
    cluster.ask("salloc", "--no-shell", "--nodes=4", "--exclusive", "--mem=0")
    number = cluster.ask("squeue", "--noheader", "--format=%i").strip()

    def run(*words, out, environment):
        shell = ("env", f"SLURM_JOB_ID={number}", "SLURM_JOB_NODELIST=n[1-4]")
        process = started(cluster, *shell, DLSCALE, *words, f"--out={out}", environment=environment)
        done = Ended(*ended(process), out=out)
        assert left(cluster) == []
        return done

    yield run
    cluster.ask("scancel", number)


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("pair", ON_SLURM, ids=str)
def test_nodes_of_a_job_hold_one_model_and_its_gradients_cross_their_wire(pair, job, sif, one_baseline, tmp_path):
    engine = ("--engine=apptainer", sif) if pair.strategy == "horovod" else ("--engine=venv", None)
    words = (f"--framework={pair.framework}", f"--strategy={pair.strategy}", *pair.settings, engine[0])
    scale = ("--hosts=slurm", f"--nodes={pair.nodes}", f"--workers={pair.nodes}")
    with one_baseline(pair.framework, engine[0], pair.nodes, out=tmp_path):
        done = job("bench", *words, *scale, *TRAINING, out=tmp_path, environment=engine[1])
        assert done.code in (0, 4), done.stderr
    record = done.record(pair.nodes)
    check_crossed(record, *(f"n{number}" for number in range(1, pair.nodes + 1)))
    sent = sum(record.transport.sent_bytes_per_step.values())
    assert sent == pytest.approx(record.transport.expected_bytes_per_step, rel=0.15)
    assert [(placed.node, placed.devices) for placed in record.trial.placement] == [
        (f"n{number}", 1) for number in range(1, pair.nodes + 1)
    ]
    assert record.measurement.samples == ITERATIONS * GLOBAL_BATCH
    check_shared_losses(record, devices=pair.nodes, synchronous=pair.synchronous)
    check_losses(done.record(1), record, synchronous=pair.synchronous)
