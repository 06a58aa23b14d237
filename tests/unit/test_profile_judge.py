"""A profile that is half a profile: a rank that never ended its pass, a trace without rows, a training that had diverged under the profiler."""

import pytest
from passes import NCU, rows, said, trial

from runner.analysis.grading.validity import pass_doubts, pass_faults


def faults(*given):
    return list(pass_faults(*given))


def doubts(*given):
    return list(pass_doubts(*given))


@pytest.mark.parametrize("kind", ["kernels", "memory", "region", "metrics"])
def test_a_pass_that_did_what_was_asked(kind):
    events = [*said(0, kind=kind), *said(1, kind=kind)]
    assert faults(trial(kind), events, rows(("op", 0), ("op", 1))) == []
    assert doubts(trial(kind), events, rows(("op", 0), ("op", 1))) == []


def test_a_rank_that_never_ended_its_pass():
    assert faults(trial(), [*said(0), *said(1)[:2]], rows(("op", 0))) == [
        "1 of 2 ranks ended their pass under the profiler"
    ]


def test_fewer_iterations_than_asked_for_are_none_and_more_are_well():
    events = [*said(0, iterations=3), *said(1, iterations=40)]
    assert faults(trial(), events, rows(("op", 0), ("op", 1))) == ["rank 0 made 3 of 5 iterations under the profiler"]


@pytest.mark.parametrize("frame", [None, rows(), rows(("region", 0), ("region", 1), ("call", 0), ("call", 1))])
def test_a_trace_without_work_in_it(frame):
    assert faults(trial(), [*said(0), *said(1)], frame) == ["rank 0 and 1 did not tell what ran"]


def test_one_rank_without_a_trace():
    assert faults(trial(), [*said(0), *said(1)], rows(("kernel", 0))) == ["rank 1 did not tell what ran"]


@pytest.mark.parametrize(
    ("kind", "sentence"), [("memory", "did not tell its memory"), ("region", "did not tell how long its regions took")]
)
def test_a_kind_without_what_it_is_for(kind, sentence):
    (found,) = faults(trial(kind), [*said(0, kind=kind), *said(1)], None)
    assert found == f"rank 1 {sentence}"


def test_counters_that_ncu_could_not_read():
    one = trial("metrics", device="gpu", ranks=1, counting=NCU)
    (found,) = faults(one, said(0, kind="metrics"), None)
    assert found.startswith("rank 0 did not tell any kernel's counters; the end of the log says")
    assert faults(one, said(0, kind="metrics"), rows(("kernel", 0))) == []


def test_counters_of_the_sampler_are_in_another_table():
    sampler = {"source": "sampler", "reason": "there is no ncu"}
    assert faults(trial("metrics", device="gpu", ranks=1, counting=sampler), said(0, kind="metrics"), None) == []


def test_a_loss_that_is_not_finite():
    events = [*said(0), *said(1, values=(2.3, None))]
    (found,) = faults(trial(), events, rows(("op", 0), ("op", 1)))
    assert found.startswith("the loss is not finite at iteration 1")


def test_no_loss_at_all():
    events = [*said(0, values=()), *said(1, values=())]
    assert faults(trial(), events, rows(("op", 0), ("op", 1))) == ["no loss was reported"]


def test_a_rate_that_had_not_settled_is_a_doubt():
    events = [*said(0), *said(1, steady=False)]
    assert doubts(trial(), events, rows(("op", 0))) == ["the rate had not settled when the profiler began"]


def test_operators_alone_are_a_doubt_where_there_is_a_gpu():
    of_gpu = trial(device="gpu", ranks=1)
    assert doubts(of_gpu, said(0), rows(("op", 0))) == ["the profiler saw operators alone, and no kernel of a GPU"]
    assert doubts(of_gpu, said(0), rows(("op", 0), ("kernel", 0))) == []
