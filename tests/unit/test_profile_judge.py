"""Prevents: a profile that is half a profile (a rank that never ended its pass, a trace without rows, a training that had diverged under the
profiler), and counters of a time in which nothing was counted: of start-up, of ncu's replays, or of one rank.
"""

import examples
import passes
import pytest
from passes import NCU, rows, said, trial

from runner.analysis.grading.validity import pass_doubts, pass_faults
from runner.analysis.telemetry.summary import pass_windows
from runner.core.events import ProfileStart, ProfileStop

SAMPLER = {"source": "sampler", "reason": "there is no ncu"}
OPS = rows(("op", 0), ("op", 1))


@pytest.mark.parametrize("kind", ["kernels", "memory", "region", "metrics"])
def test_a_pass_that_did_what_was_asked(kind):
    events = [*said(0, kind=kind), *said(1, kind=kind)]
    assert list(pass_faults(trial(kind), events, OPS)) == []
    assert list(pass_doubts(trial(kind), events, OPS)) == []


@pytest.mark.parametrize(
    ("kind", "events", "frame", "fault"),
    [
        ("kernels", [*said(0), *said(1)[:2]], rows(("op", 0)), "1 of 2 ranks ended their pass under the profiler"),
        # Fewer iterations than asked for are a fault, more are none.
        ("kernels", [*said(0, iterations=3), *said(1, iterations=40)], OPS, "rank 0 made 3 of 5 iterations"),
        ("kernels", [*said(0), *said(1)], None, "rank 0 and 1 did not tell what ran"),
        ("kernels", [*said(0), *said(1)], rows(), "rank 0 and 1 did not tell what ran"),
        ("kernels", [*said(0), *said(1)], rows(("region", 0), ("call", 1)), "rank 0 and 1 did not tell what ran"),
        ("kernels", [*said(0), *said(1)], rows(("kernel", 0)), "rank 1 did not tell what ran"),
        ("memory", [*said(0, kind="memory"), *said(1)], None, "rank 1 did not tell its memory"),
        ("region", [*said(0, kind="region"), *said(1)], None, "rank 1 did not tell how long its regions took"),
        ("kernels", [*said(0), *said(1, values=(2.3, None))], OPS, "the loss is not finite at iteration 1"),
        ("kernels", [*said(0, values=()), *said(1, values=())], OPS, "no loss was reported"),
    ],
)
def test_what_is_missing_of_a_pass(kind, events, frame, fault):
    (found,) = pass_faults(trial(kind), events, frame)
    assert found.startswith(fault)


def test_counters_that_ncu_could_not_read_and_those_of_the_sampler_in_another_table():
    one = trial("metrics", device="gpu", ranks=1, counting=NCU)
    (found,) = pass_faults(one, said(0, kind="metrics"), None)
    assert found.startswith("rank 0 did not tell any kernel's counters; the end of the log says")
    assert list(pass_faults(one, said(0, kind="metrics"), rows(("kernel", 0)))) == []
    sampled = trial("metrics", device="gpu", ranks=1, counting=SAMPLER)
    assert list(pass_faults(sampled, said(0, kind="metrics"), None)) == []


def test_a_rate_that_had_not_settled_and_operators_alone_of_a_gpu_are_doubts():
    unsettled = [*said(0), *said(1, steady=False)]
    assert list(pass_doubts(trial(), unsettled, OPS)) == ["the rate had not settled when the profiler began"]
    of_gpu = trial(device="gpu", ranks=1)
    (doubt,) = pass_doubts(of_gpu, said(0), rows(("op", 0)))
    assert doubt == "the profiler saw operators alone, and no kernel of a GPU"
    assert list(pass_doubts(of_gpu, said(0), rows(("op", 0), ("kernel", 0)))) == []


def timed(*, ranks=2):
    """Passes of all ranks from 10 to 13.5 s, a tenth later in each."""
    return [
        event.model_copy(update={"t": {ProfileStart: 10.0, ProfileStop: 13.5}.get(type(event), 0.0) + rank / 10})
        for rank in range(ranks)
        for event in said(rank, kind="metrics", iterations=40)
    ]


def test_the_stretch_of_each_rank_and_what_it_trained_on():
    counted = trial("metrics", device="gpu", counting=SAMPLER, global_batch=64)
    first, second = pass_windows(counted, timed())
    assert (first.rank, first.start, first.seconds, first.samples) == (0, 10.0, 3.5, 40 * 32)
    assert (second.rank, second.start) == (1, 10.1)
    assert pass_windows(counted, timed(ranks=1)) == ()  # one rank alone is none


@pytest.mark.parametrize(
    "other",
    [
        trial("metrics", device="gpu", counting=NCU),
        trial("kernels"),
        examples.trial(world_size=2, processes=2),
    ],
    ids=["replayed by ncu", "slowed by a profiler", "no pass"],
)
def test_what_a_machine_does_not_do_by_itself_has_no_stretch(other):
    assert pass_windows(other, timed()) == ()


def test_ncu_is_named_as_the_source_of_what_it_told():
    under_ncu = trial("metrics", device="gpu", ranks=1, counting=NCU)
    assert passes.record_of(under_ncu, frame=rows(("kernel", 0))).profile.source == "ncu"
    assert passes.record_of(trial("metrics", device="gpu", ranks=1, counting=SAMPLER)).profile.source == "made up"
