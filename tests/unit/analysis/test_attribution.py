"""Prevents: step time counted twice or not at all, a straggler blamed on the wires, a hidden wait blamed on the input, a probe read beyond
what it measured, missing evidence taken for zero."""

import pytest
import wires
from hypothesis import example, given
from hypothesis import strategies as st
from program_events import program_event

from runner.analysis.grading.measure import collectives, exchange_seconds, exchanges, measure, phases, step_parts
from runner.core.events import (
    Bandwidth,
    Compute,
    FirstStep,
    InputAlone,
    NoCollectives,
    Phase,
    RunStop,
    WarmupEnd,
    Window,
)
from runner.core.measurement import Exchange


def window(rank, index, *, seconds=1.0, waited=0.0, iterations=10):
    length = {"start": index * seconds, "seconds": seconds, "iterations": iterations, "samples": iterations}
    return program_event(Window, rank=rank, index=index, input_seconds=waited, **length)


def compute(rank, *seconds):
    return program_event(Compute, rank=rank, seconds=seconds)


def bandwidth(size_bytes, *seconds, operation="all_reduce", wrong=0):
    rates = {"time_us": 1e6, "algbw_gb_s": 1.0, "busbw_gb_s": 1.5}
    message = {"size_bytes": size_bytes, "elements": size_bytes // 4, "dtype": "float"}
    return program_event(Bandwidth, operation=operation, seconds=seconds or None, wrong=wrong, **message, **rates)


def parts(events, *, first=0, seconds=2.0, gradient_bytes=None):
    return step_parts(events, first_window=first, seconds=seconds, gradient_bytes=gradient_bytes)


def test_a_step_is_input_the_slowest_ranks_compute_and_communication():
    # Two windows of 10 steps in 2 s: 0.1 s a step. The slower rank computes for 0.06 s, both wait for 0.01 s: 0.03 s remain.
    events = [window(rank, index, waited=0.1) for rank in (0, 1) for index in (0, 1)]
    found = parts([*events, compute(0, 0.03, 0.04, 0.05), compute(1, 0.06, 0.07, 0.06)])
    assert found.step_s == pytest.approx(0.1)
    assert found.compute_s == pytest.approx(0.05)  # medians 0.04 and 0.06
    assert found.stragglers_s == pytest.approx(0.01)
    assert (found.input_waited_s, found.input_s) == (pytest.approx(0.01), pytest.approx(0.01))
    assert found.communication_s == pytest.approx(0.03)
    assert (found.exchange_alone_s, found.inseparable) == (None, None)


def test_the_longest_wait_in_each_window_counts():
    # 0.4 s in the first window, 0.3 s in the second, over 20 steps.
    events = [window(0, 0, waited=0.4), window(1, 0, waited=0.1), window(0, 1, waited=0.0), window(1, 1, waited=0.3)]
    assert parts(events).input_waited_s == pytest.approx(0.035)


def test_a_wait_hidden_by_compute_costs_nothing():
    # A GPU computes for 0.08 s of each 0.1 s; the loop, which only enqueues, waits 0.09 s for its next batch. That costs 0.02 s.
    found = parts([window(0, 0, waited=0.9), window(0, 1, waited=0.9), compute(0, 0.08)])
    assert found.input_waited_s == pytest.approx(0.09)
    assert found.input_s == pytest.approx(0.02)
    assert found.compute_s == pytest.approx(0.08)
    assert (found.communication_s, found.stragglers_s) == (None, None)  # one device exchanges nothing


@pytest.mark.parametrize(
    "passes",
    [
        [(0.12,), (0.12,)],  # slower alone than in a step: Inception-v3 had -3.99 ms of communication
        [(0.09, 0.099, 0.12), (0.05,)],  # 1 ms remains, and the passes differ by 30
    ],
)
def test_a_step_that_its_passes_do_not_explain_has_no_parts(passes):
    """A part of a step was negative in 86 of 219 records."""
    events = [window(rank, index, waited=0.1) for rank in (0, 1) for index in (0, 1)]
    found = parts([*events, *(compute(rank, *own) for rank, own in enumerate(passes))])
    assert (found.input_s, found.compute_s, found.stragglers_s, found.communication_s) == (None,) * 4
    assert "a step takes 100 ms" in found.inseparable


@pytest.mark.parametrize(("waited", "known"), [(0.98, True), (1.02, False)])
def test_a_wait_of_up_to_a_hundredth_of_a_step_counts_in_full(waited, known):
    """10 steps in 1 s: up to 0.01 s in total counts as input, whatever compute hides; more requires a pass without input."""
    found = parts([window(0, 0, waited=waited / 100)], seconds=1.0)
    assert (found.input_s is not None, found.inseparable is None) == (known, known)


def test_windows_before_the_steady_state_or_missing_on_a_rank_do_not_count():
    events = [window(0, 0, waited=5.0), window(0, 1, waited=0.1), window(0, 2, waited=0.1, iterations=5)]
    found = parts(events, first=1, seconds=1.5)
    assert found.step_s == pytest.approx(0.1)  # 15 steps
    assert found.input_waited_s == pytest.approx(0.2 / 15)
    events = [window(0, 0, waited=0.1), window(0, 1, waited=7.0), window(1, 0, waited=0.2)]
    assert parts(events, seconds=1.0).input_waited_s == pytest.approx(0.02)


def test_unreported_times_are_missing_and_not_zero():
    assert parts([window(0, 0, waited=None)]) is None
    assert parts([compute(0, 0.1)]) is None
    assert parts([window(0, 0, waited=0.1), window(1, 0, waited=None)], seconds=1.0) is None
    told = parts([window(0, 0, waited=None), compute(0, 0.05)], seconds=1.0)
    waited = parts([window(0, 0, waited=0.005), window(1, 0, waited=0.005)], seconds=1.0)
    for found, missing in ((told, "how long it waited for input"), (waited, "a pass without any exchange")):
        assert (found.input_s, found.compute_s) == (None, None)
        assert missing in found.inseparable
    assert told.input_waited_s is None


def test_the_probe_is_sorted_by_size_and_timed_by_its_median():
    events = [bandwidth(4096, 0.5, 0.1, 0.2), bandwidth(64, 0.01, operation="push_pull", wrong=3), bandwidth(1 << 30)]
    assert exchanges(events) == (
        Exchange(operation="push_pull", size_bytes=64, seconds=0.01, algbw_gb_s=1.0, busbw_gb_s=1.5, wrong=3),
        Exchange(operation="all_reduce", size_bytes=4096, seconds=0.2, algbw_gb_s=1.0, busbw_gb_s=1.5, wrong=0),
    )


def test_collectives_are_kept_out_of_the_gradient_exchange_probe():
    """Prevents an all-gather, which sends half as much, in the line from which the gradient exchange is read."""
    missing = program_event(NoCollectives, operations=("all_to_all",), reason="none")
    events = [bandwidth(64, 0.5), bandwidth(96, 0.2, operation="reduce_scatter"), missing]
    events += [bandwidth(size, 0.1, operation="all_gather") for size in (96, 48)]
    assert [one.operation for one in exchanges(events)] == ["all_reduce"]
    found = [(one.operation, one.size_bytes) for one in collectives(events)]
    assert found == [("all_gather", 48), ("all_gather", 96), ("reduce_scatter", 96)]
    assert measure(events, started=0.0, unit="images/s").no_collectives == "all-to-all: none"


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (100, 1.0),
        (300, 2.0),  # timed
        (200, 1.5),  # half way between two sizes
        (10, 1.0),  # latency
        (3000, 20.0),  # ten times the largest, at its bandwidth
    ],
)
def test_the_time_of_an_exchange_by_hand(size, seconds):
    probe = exchanges([bandwidth(300, 2.0), bandwidth(100, 1.0)])
    assert exchange_seconds(probe, size) == pytest.approx(seconds)
    assert exchange_seconds((), size) is None


sizes = st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 1e3)), min_size=1, max_size=6)


@given(sizes, st.integers(1, 2 * 10**9))
def test_an_exchange_is_never_faster_than_the_fastest_and_scales_beyond_the_largest(timed, size):
    probe = exchanges([bandwidth(size_bytes, seconds) for size_bytes, seconds in timed])
    found = exchange_seconds(probe, size)
    assert found >= min(seconds for _, seconds in timed) * (1 - 1e-9)
    beyond = 2 * max(size_bytes for size_bytes, _ in timed)
    assert exchange_seconds(probe, 2 * beyond) == pytest.approx(2 * exchange_seconds(probe, beyond))


@example(waits=[0.0, 0.0], passes=[0.24319505932529634] * 3, seconds=3.0)
@given(
    waits=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    passes=st.lists(st.floats(0.001, 0.5), min_size=1, max_size=4),
    seconds=st.floats(0.5, 10),
)
def test_parts_add_up_to_the_step_and_none_is_negative(waits, passes, seconds):
    events = [window(rank, 0, waited=wait) for rank, wait in enumerate(waits)]
    found = parts([*events, *(compute(rank, one) for rank, one in enumerate(passes))], seconds=seconds)
    told = [found.input_s, found.compute_s, found.stragglers_s, found.communication_s]
    if found.inseparable:
        assert told == [None] * 4
    else:
        known = [part for part in told if part is not None]
        assert min(known) >= 0
        assert sum(known) == pytest.approx(found.step_s)


def phase(rank, name, seconds):
    return program_event(Phase, rank=rank, name=name, seconds=seconds)


def test_a_measurement_holds_probe_and_parts():
    events = [wires.start(4000), bandwidth(1000, 0.01), compute(0, 0.05), compute(1, 0.07)]
    events += [window(rank, index, waited=0.1) for rank in (0, 1) for index in range(4)]
    found = measure(events, started=0.0, unit="images/s")
    assert found.gradient_bytes == 4000
    assert [one.size_bytes for one in found.probe] == [1000]
    assert found.step_parts.stragglers_s == pytest.approx(0.01)
    assert found.step_parts.communication_s == pytest.approx(0.02)
    assert found.step_parts.exchange_alone_s == pytest.approx(0.04)


@pytest.mark.parametrize(("device", "at", "known"), [("gpu", 9.0, False), ("gpu", 12.0, True), ("cpu", 9.0, True)])
def test_passes_before_the_first_window_separate_no_step_of_several_gpus(device, at, known):
    """At the clock of a GPU that was idle before, a step without any exchange exceeded its pass by 4.9 of 117 ms: "communication"."""
    events = [*(window(rank, 0) for rank in (0, 1)), compute(0, 0.06), compute(1, 0.06)]
    events += [
        program_event(WarmupEnd, iterations=4, t=10.0),
        program_event(Phase, name="probe_compute", seconds=1.0, t=at),
    ]
    found = measure(events, started=0.0, unit="images/s", device=device).step_parts
    assert found.step_s == pytest.approx(0.1)
    assert (found.communication_s is not None, found.inseparable is None) == (known, known)


def test_probes_are_excluded_from_the_time_to_the_first_step_and_from_warm_up():
    events = [
        program_event(FirstStep, t=8.0, received=30.0),
        program_event(FirstStep, rank=1, t=8.5, received=30.5),
        *(phase(rank, "probe_wires", 1.5 + rank) for rank in (0, 1)),
        *(phase(rank, "probe_collectives", 0.5) for rank in (0, 1)),
        *(phase(rank, "probe_peak", 1.0 + rank / 4) for rank in (0, 1)),
        *(phase(rank, "probe_compute", 1.0) for rank in (0, 1)),
        *(program_event(WarmupEnd, rank=rank, iterations=4, t=12.0, received=34.0) for rank in (0, 1)),
    ]
    assert measure(events, started=20.0, unit="images/s").first_step_s == pytest.approx(6.25)  # 30.5 - 20 - 3 - 1.25
    found = phases(events)
    assert (found["probe_wires"], found["probe_collectives"], found["probe_compute"]) == (2.5, 0.5, 1.0)
    assert found["warmup"] == pytest.approx(3.0)  # 12 - 8 - 1


def test_passes_after_the_last_step_are_excluded_from_the_measured_phase():
    """Before the first window a GPU under its power cap ran them at a higher clock than the steps, and they looked like communication."""
    events = [
        program_event(FirstStep, t=8.0),
        program_event(WarmupEnd, iterations=4, t=12.0),
        program_event(Phase, name="probe_compute", seconds=1.5, t=21.0),
        program_event(RunStop, iterations=10, samples=640, t=22.0),
    ]
    found = phases(events)
    assert (found["warmup"], found["measure"]) == (pytest.approx(4.0), pytest.approx(8.5))  # 12 - 8, and 22 - 12 - 1.5


def test_input_alone_is_summed_over_ranks_and_excluded_from_the_measured_phase():
    events = [
        program_event(WarmupEnd, iterations=4, t=10.0),
        program_event(InputAlone, batches=8, samples=512, seconds=2.0, t=19.0),
        program_event(InputAlone, rank=1, batches=4, samples=256, seconds=2.5, t=19.5),
        *(phase(rank, "input_alone", 3.0 + rank) for rank in (0, 1)),
        program_event(RunStop, iterations=10, samples=640, t=20.0),
    ]
    assert measure(events, started=0.0, unit="images/s").input_alone_per_s == pytest.approx(256 + 102.4)
    assert phases(events)["measure"] == pytest.approx(6.0)  # 20 - 10 - 4
    assert measure(events[:1], started=0.0, unit="images/s").input_alone_per_s is None


@pytest.mark.parametrize(("workers", "known"), [(2, True), (3, False)])
def test_input_alone_is_unknown_if_each_worker_delivered_less_than_two_batches(workers, known):
    events = [program_event(InputAlone, batches=5, samples=320, seconds=2.0, t=19.0)]
    found = measure(events, started=0.0, unit="images/s", loader_workers=workers)
    assert (found.input_alone_per_s is not None) == known
