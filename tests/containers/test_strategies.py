"""Every strategy on two real CPU workers: however the samples are divided, the losses are those of one worker.

Prevents: ranks that each train their own model and look twice as fast, gradients that are summed and not averaged, a batch that is not
divided, samples counted twice, two ranks on one core, a speedup against another run's baseline.
"""

import os
from dataclasses import dataclass

import pytest
from numerics import GLOBAL_BATCH, ITERATIONS, TRAINING, check_losses, check_shared_losses, events

from runner.core.strategies import STRATEGIES

pytestmark = pytest.mark.usefixtures("nothing_left")


@dataclass(frozen=True)
class Pair:
    """A framework with a strategy and its settings; `processes` processes drive the two devices."""

    framework: str
    strategy: str
    settings: tuple[str, ...] = ()
    processes: int = 2
    synchronous: bool = True
    transport: str = "loopback"
    dies: bool = True  # in test_deaths.py; False if a similar pair does (Horovod's MXNet ranks, on two nodes)

    @property
    def software(self):
        """What pairs that may share a baseline have in common."""
        of_the_program = [word for word in self.settings if word.startswith(("--xla", "--techniques"))]
        return self.framework, self.strategy == "horovod", *of_the_program

    @property
    def words(self):
        return (f"--framework={self.framework}", f"--strategy={self.strategy}", *self.settings)

    def __str__(self):
        return "-".join(
            (self.framework, self.strategy, *(word.rpartition("=")[2].lstrip("-") for word in self.settings))
        )


PAIRS = [
    Pair("mxnet", "kvstore", ("--kvstore=device",), processes=1, transport="process"),
    Pair("mxnet", "kvstore", ("--kvstore=dist_sync",)),
    Pair(
        "mxnet",
        "kvstore",
        ("--kvstore=device", "--techniques=aggregated-updates"),
        processes=1,
        transport="process",
        dies=False,
    ),
    Pair("mxnet", "kvstore", ("--kvstore=dist_sync_device", "--techniques=aggregated-updates"), dies=False),
    Pair("mxnet", "kvstore", ("--kvstore=dist_async",), synchronous=False, dies=False),
    Pair("pytorch", "ddp"),
    Pair("pytorch", "ddp", ("--techniques=one-message",), dies=False),
    Pair("tensorflow", "mirrored", ("--xla",), processes=1, transport="process", dies=False),
    Pair("tensorflow", "multiworker"),
    Pair("tensorflow", "multiworker", ("--techniques=xla,step-loop",), dies=False),
    Pair("tensorflow", "ps", synchronous=False),
    Pair("mxnet", "horovod", ("--controller=gloo",), dies=False),
    Pair("pytorch", "horovod", ("--controller=gloo",)),
    Pair("pytorch", "horovod", ("--controller=mpi", "--fusion-threshold=16", "--cycle-time=2"), transport="shm"),
    Pair("tensorflow", "horovod", ("--controller=gloo",), dies=False),
]
PAIRS += [  # strategies without a row above, with their default settings
    Pair(framework, name, processes=1 if strategy.one_process else 2)
    for name, strategy in STRATEGIES.items()
    for framework in strategy.frameworks
    if "cpu" in strategy.devices and not strategy.cuts and name not in {"single", *(pair.strategy for pair in PAIRS)}
]


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def pair(request):
    return request.param


@pytest.fixture(scope="module")
def ended(pair, dlscale, one_baseline, tmp_path_factory):
    out = tmp_path_factory.mktemp(str(pair))
    with one_baseline(*pair.software, *TRAINING, out=out):
        done = dlscale("bench", *pair.words, *TRAINING, "--workers=2", out=out)
        assert done.code == 0, done.stderr
    return done


def test_the_record_has_both_devices_and_all_their_samples(pair, ended):
    trial, measurement = ended.record(2).trial, ended.record(2).measurement
    assert (trial.strategy, trial.world_size, trial.processes) == (pair.strategy, 2, pair.processes)
    assert (trial.batch_per_device, trial.global_batch) == (GLOBAL_BATCH // 2, GLOBAL_BATCH)
    assert measurement.samples == ITERATIONS * GLOBAL_BATCH
    assert [start["world_size"] for start in events(ended, 2, "run_start")] == [2] * pair.processes
    assert [start["global_batch"] for start in events(ended, 2, "run_start")] == [GLOBAL_BATCH] * pair.processes
    assert sorted(measurement.losses) == [str(rank) for rank in range(pair.processes)]
    assert ended.record(2).transport.used == pair.transport


def test_both_devices_hold_one_model(pair, ended):
    record = ended.record(2)
    # Workers of `ps` pull the weights before they are compared, with all pushes of both.
    check_shared_losses(record, devices=2, synchronous=pair.synchronous or pair.strategy == "ps")
    if pair.strategy == "ps":
        # With momentum and stale gradients, a curve has spikes, whose position depends on which worker was faster.
        assert all(min(losses) < 0.5 * losses[0] for losses in record.measurement.losses.values())
        norms = record.measurement.parameter_norms
        assert norms["0"] == norms["1"]


def test_two_workers_have_the_losses_of_one_on_the_same_samples(pair, ended):
    check_losses(ended.record(1), ended.record(2), synchronous=pair.synchronous)


def test_the_speedup_is_relative_to_its_own_baseline(ended):
    scaling = ended.record(2).scaling
    assert scaling.baseline_run_id == ended.record(1).run_id
    rates = [ended.record(scale).measurement.throughput.value for scale in (1, 2)]
    assert scaling.speedup.value == pytest.approx(rates[1] / rates[0])
    assert ended.record(1).trial.key == ended.record(2).trial.key


def test_each_rank_has_its_own_cores_and_the_requested_threads(pair, ended):
    share = len(os.sched_getaffinity(0)) // 2
    cores = [env["cpus"] for env in events(ended, 2, "env")]
    assert [len(own) for own in cores] == [share * 2 // pair.processes] * pair.processes
    assert len({core for own in cores for core in own}) == share * 2
    assert ended.record(2).trial.threads == 1
    assert len(events(ended, 1, "env")[0]["cpus"]) == share


def test_more_workers_than_cores_need_an_option_and_degrade_the_run(dlscale, tmp_path):
    workers = len(os.sched_getaffinity(0)) + 1
    words = ("--framework=mxnet", "--device=cpu", "--model=lenet", f"--workers={workers}")
    refused = dlscale("bench", *words, out=tmp_path)
    assert refused.code == 2
    assert "--oversubscribe" in refused.stderr
    assert refused.records == []
    ended = dlscale("bench", *words, "--oversubscribe", out=tmp_path, only="scaled")
    assert ended.code == 0, ended.stderr
    record = ended.record(workers)
    assert record.trial.oversubscribed
    assert record.validity.status == "degraded"
    assert f"{workers} CPU workers shared cores" in record.validity.reasons[0]
