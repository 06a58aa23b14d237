"""Prevents: figures used that must not be: lost samples, ranks that drifted apart, losses that diverged, speedups clamped or invented."""

import math
from typing import get_args

import examples
import pytest
import wires
from monitored import MONITOR, beats, frame, rows, started, stopped
from program_events import program_event
from records import events, provenance, record

from runner.analysis.grading.grade import grade, scaling
from runner.core.container_spec import ContainerSpec
from runner.core.events import Bandwidth, Eval, FlopPerSample, Loss, RunStop, Techniques, Usage, Window
from runner.core.record import ENDED, Outcome, Status
from runner.core.workload import choose_workload, load_workloads

WORKLOAD = choose_workload(load_workloads(examples.ROOT), None)
OK = Outcome(status="ok", reason=None, exit_codes={"w0": 0}, started=40.0, phases_s={})
TWO = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)


def graded(trial, said, outcome=OK):
    return grade(trial=trial, outcome=outcome, events=said, provenance=provenance(), workload=WORKLOAD)


def reasons(trial, said, outcome=OK):
    found = graded(trial, said, outcome).validity
    assert found.status == "invalid"
    return "; ".join(found.reasons)


def change(said, kind, **fields):
    return [event.model_copy(update=fields) if isinstance(event, kind) and event.rank == 1 else event for event in said]


@pytest.mark.parametrize("trial", [examples.trial(), TWO])
def test_a_flawless_run_is_valid(trial):
    found = graded(trial, events(trial))
    assert found.validity.status == "valid"
    # 32 images a device and step of 0.1 s
    assert found.measurement.throughput.value == pytest.approx(320.0 * trial.world_size)
    assert found.measurement.throughput.unit == "images/s"
    assert found.measurement.training_time_s == pytest.approx(0.1 * 40)
    assert found.measurement.samples == 40 * trial.global_batch
    assert found.measurement.first_step_s is None


def on_cores(trial, *, used_s, cpus=(0,)):
    """Validity of a run whose cores were busy for all of the 4 measured seconds; `used_s` by container."""
    containers = [spec(f"w{number}", cpus=cpus) for number in range(len(used_s))]
    usage = [
        program_event(Usage, where=where, cpu_s=seconds * at, t=4.0 * at, container=f"w{number}")
        for number, seconds in enumerate(used_s)
        if seconds is not None
        for at, where in enumerate(("start", "stop"))
    ]
    t = beats(0.0, 5.0)
    return grade(
        trial=trial,
        outcome=OK,
        events=[*events(trial), *usage, started(t=0.0), stopped()],
        samples=frame(rows(t, device="host", core_percent=[[100.0, 100.0]] * len(t))),
        monitors={MONITOR: "here"},
        provenance=provenance(),
        workload=WORKLOAD,
        containers=[*containers, spec(MONITOR, role="monitor")],
    ).validity


def spec(name, **changes):
    fields = {"name": name, "node": "here", "role": "worker", "image": "none", "argv": (), "env": {}, "user": "0:0"}
    return ContainerSpec(**(fields | {"labels": {}} | changes))


def test_a_run_is_degraded_if_others_used_its_cores():
    """Two benchmarks on the same cores, each half as fast as alone, were both valid."""
    found = on_cores(examples.trial(), used_s=[2.0])
    assert found.status == "degraded"
    assert found.reasons == ("others used the job's core 0 for 2.0 of the 4.0 CPU seconds that were measured",)
    assert on_cores(examples.trial(), used_s=[3.9]).status == "valid"
    assert on_cores(examples.trial(), used_s=[3.9, 3.9], cpus=(0, 1)).status == "valid"


@pytest.mark.parametrize(
    ("trial", "used_s", "cpus"),
    [
        (examples.trial(), [2.0, None], (0,)),  # a server that does not report its usage
        (examples.trial(), [None], (0,)),
        (examples.trial(), [2.0], ()),  # not pinned to a core
        (examples.trial(nodes=2), [2.0], (0,)),
        (examples.trial(concurrent={"trainings": 2, "case": "together", "number": 1, "shared": True}), [2.0], (0,)),
    ],
)
def test_unknown_cpu_time_is_not_blamed_on_others(trial, used_s, cpus):
    assert not [reason for reason in on_cores(trial, used_s=used_s, cpus=cpus).reasons if "others used" in reason]


def without(kind, **wanted):
    """Events of two ranks without one event."""
    return [
        event
        for event in events(TWO)
        if not (isinstance(event, kind) and all(getattr(event, name) == value for name, value in wanted.items()))
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (without(Window, rank=1, index=3), "2496 samples counted, 40 iterations of 64 make 2560"),
        (without(RunStop, rank=1), "1 of 2 ranks reported their end"),
        # A distributed optimizer that silently does not average: every rank trains alone, at a splendid rate.
        (change(events(TWO), RunStop, parameter_norm=12.51), "gradients were not averaged"),
        (change(events(TWO), RunStop, parameter_norm=None), "the weights are not finite"),
        (change(events(TWO), Loss, values=(2.3,) * 10), "losses of 10 of 44 iterations were reported"),
        (change(events(TWO), Loss, values=(*[2.3] * 20, None, *[2.3] * 23)), "not finite at iteration 20"),
        (change(events(TWO), Loss, values=(*[2.3] * 20, math.inf, *[2.3] * 23)), "not finite at iteration 20"),
    ],
)
def test_each_fault_makes_a_run_invalid(said, reason):
    assert reason in reasons(TWO, said)


def evaluated(trial, *losses):
    """One evaluation per rank; each of `losses` is reported by a rank's devices."""
    return [
        *events(trial),
        *(program_event(Eval, rank=rank, iteration=44, losses=own) for rank, own in enumerate(losses)),
    ]


def test_different_losses_on_one_batch_mean_different_weights():
    assert graded(TWO, evaluated(TWO, (2.3,), (2.3019,))).validity.status == "valid"
    found = reasons(TWO, evaluated(TWO, (2.3,), (2.31,)))
    assert found == "after 44 iterations the devices' losses on one batch are 2.3 to 2.31: gradients were not averaged"
    one_process = TWO.model_copy(update={"kvstore": "device", "processes": 1, "batch_per_device": 64})
    assert "gradients were not averaged" in reasons(one_process, evaluated(one_process, (2.3, 2.4)))


def test_a_wrong_result_of_a_collective_makes_the_run_invalid():
    message = {"size_bytes": 1024, "elements": 256, "dtype": "float", "seconds": (1.0,), "time_us": 1e6}
    probed = program_event(Bandwidth, operation="reduce_scatter", wrong=3, algbw_gb_s=1e-6, busbw_gb_s=5e-7, **message)
    assert reasons(TWO, [*events(TWO), probed]) == (
        "3 elements of the reduce-scatter of 1024 bytes came out wrong before the first step: the wires or the library that drives them lose "
        "data"
    )


def test_a_technique_without_effect_on_a_rank_makes_the_run_invalid():
    told = [
        program_event(Techniques, rank=rank, effects={"amp": 21, "aggregated-updates": 60 * rank}) for rank in (1, 0)
    ]
    found = graded(TWO, [*events(TWO), *told])
    assert found.measurement.effects == {"amp": 21, "aggregated-updates": 0}
    assert found.validity.reasons == (
        "aggregated-updates had no effect: the program found nothing of it in its first step",
    )
    assert graded(TWO, [*events(TWO), told[0]]).validity.status == "valid"


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("tf32", 1e-3), ("fp16", 1e-2), ("bf16", 1e-2)])
def test_tolerances_between_ranks_for_losses_by_precision_and_for_weights(precision, tolerance):
    trial = TWO.model_copy(update={"precision": precision})
    for share, status in ((0.97, "valid"), (1.03, "invalid")):
        assert graded(trial, evaluated(trial, (2.0,), (2 - 2 * share * tolerance,))).validity.status == status
        norms = change(events(trial), RunStop, parameter_norm=12.5 - 12.5 * share * 1e-5)
        assert graded(trial, norms).validity.status == status


def test_oversubscribed_workers_degrade_a_run():
    trial = TWO.model_copy(update={"oversubscribed": True})
    found = graded(trial, events(trial)).validity
    assert (found.status, found.reasons) == ("degraded", ("2 CPU workers shared cores (--oversubscribe)",))


def test_an_asynchronous_store_may_hold_different_weights():
    trial = TWO.model_copy(update={"kvstore": "dist_async"})
    assert graded(trial, change(events(trial), RunStop, parameter_norm=13.0)).validity.status == "valid"
    assert graded(trial, evaluated(trial, (2.3,), (2.4,))).validity.status == "valid"


def test_a_loss_that_does_not_fall_on_real_images_makes_a_run_invalid():
    trial = examples.trial(data="/data/set")
    down = [2.3 - 0.02 * i for i in range(44)]
    assert graded(trial, events(trial, losses=down)).validity.status == "valid"
    assert "the loss does not go down" in reasons(trial, events(trial, losses=down[::-1]))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("failed", "the run failed: why"),
        ("timeout", "the run timed out: why"),
        ("silent", "the run fell silent: why"),
        ("interrupted", "the run was interrupted: why"),
    ],
)
def test_the_end_of_a_failed_run_is_a_sentence(status, sentence):
    """`the run silent: no output for 600 s` is not one."""
    outcome = Outcome(status=status, reason="why", exit_codes={}, started=0.0, phases_s={})
    assert reasons(TWO, [], outcome) == sentence
    assert set(ENDED) == set(get_args(Status))


def test_a_rate_that_never_settles_is_degraded_and_keeps_its_figures():
    trial = examples.trial()
    said = [
        e.model_copy(update={"seconds": e.seconds * 1.1**e.index, "start": sum(0.2 * 1.1**i for i in range(e.index))})
        if e.event == "window"
        else e
        for e in events(trial)
    ]
    found = graded(trial, said)
    assert found.validity.status == "degraded"
    assert found.measurement.throughput is not None


def test_speedup_is_the_ratio_to_the_baseline_and_efficiency_is_speedup_per_device():
    base = record()
    found = scaling(TWO, "two", graded(TWO, events(TWO, seconds=0.125)), base)  # 512 images/s on two against 320 on one
    assert found.baseline_run_id == "run-1"
    assert found.speedup.value == pytest.approx(1.6)
    assert found.efficiency.value == pytest.approx(0.8)
    assert not found.superlinear
    # ± from one process says nothing: its windows are alike, whatever the next process does.
    rate = graded(TWO, events(TWO)).measurement.throughput
    assert (rate.ci95, found.speedup.ci95, found.efficiency.ci95) == (None, None, None)
    above = scaling(TWO, "two", graded(TWO, events(TWO, seconds=0.05)), base)
    assert (above.speedup.value, above.superlinear) == (pytest.approx(4.0), True)  # flagged, and not clamped


def test_there_is_no_speedup_without_a_baseline_or_for_an_invalid_run():
    assert scaling(TWO, "two", graded(TWO, events(TWO)), None).speedup is None
    assert scaling(TWO, "two", graded(TWO, events(TWO)[:5]), record()).speedup is None
    one = examples.trial()
    assert scaling(one, "one", graded(one, events(one)), None).speedup.value == 1.0


def test_achieved_flop_rate_follows_from_throughput_and_is_absent_without_a_count():
    """1,280 images in 4 s, 3 GFLOP each: 0.96 TFLOP/s."""
    trial = examples.trial()
    start = wires.start(None, flop_per_sample=FlopPerSample(forward=1e9, backward=2e9))
    assert graded(trial, [start, *events(trial)]).measurement.flop.achieved_tflops == pytest.approx(0.96)
    assert graded(trial, events(trial)).measurement.flop is None
