"""Prevents: concurrent trainings on the same cores that should have their own, a time that counts only one of several trainings, an incomplete
case that counts, and a concurrent run as a baseline."""

from pathlib import Path

import examples
import pytest
from records import record

from runner.analysis.comparisons.settings import case_figures
from runner.analysis.grading.grade import scaling
from runner.analysis.summarize import summarize
from runner.core.errors import RequestError
from runner.core.trial import Concurrent
from runner.plan.launch.job import assign_seats
from runner.plan.placement import cases
from runner.report.comparisons import concurrent
from runner.results.store import baseline_for
from runner.run.trial_runner import cell, concurrent_groups


def training(case, number, *, repeat=1, world_size=1, trainings=2, **changes):
    concurrent = Concurrent(trainings=trainings, case=case, number=number, **changes)
    return examples.trial(concurrent=concurrent, repeat=repeat, world_size=world_size)


def run(case, number, *, windows, repeat=1, valid=True):
    """A run with these measured windows, each ``(start, seconds)``."""
    base = record(run_id=f"{case}{number}-{repeat}", trial=training(case, number, repeat=repeat))
    raw = base.measurement.windows[0]
    own = tuple(
        raw.model_copy(update={"index": index, "start": start, "seconds": seconds})
        for index, (start, seconds) in enumerate(windows)
    )
    measurement = base.measurement.model_copy(
        update={"windows": own, "training_time_s": sum(seconds for _, seconds in windows), "samples": 320}
    )
    status = "valid" if valid else "invalid"
    validity = base.validity.model_copy(update={"status": status, "reasons": () if valid else ("a rank failed",)})
    return Path(base.run_id), base.model_copy(update={"measurement": measurement, "validity": validity})


@pytest.mark.parametrize(
    ("trainings", "devices", "each", "shared"),
    [(2, 4, 2, False), (2, 2, 1, False), (2, 1, 1, True), (2, 3, 3, True), (4, 4, 1, False)],
)
def test_devices_are_divided_equally_or_else_shared(trainings, devices, each, shared):
    found = cases(trainings, (devices,))
    assert [one.case for _, one in found] == ["one", *["sequential"] * trainings, *["together"] * trainings]
    assert {own for own, one in found if one.case != "together"} == {devices}
    assert {(own, one.shared) for own, one in found if one.case == "together"} == {(each, shared)}
    assert {own for own, _ in found} == {each, devices}


def test_a_sweep_is_refused():
    with pytest.raises(RequestError, match=r"^CONCURRENT=2 compares on one number of devices, not on 1,2; choose one"):
        cases(2, (1, 2))


@pytest.mark.parametrize(("number", "cores"), [(1, (0, 1)), (2, (2, 3))])
def test_concurrent_trainings_have_their_own_devices(number, cores):
    trial = training("together", number, world_size=2)
    (seat,) = assign_seats(trial, {"here": examples.node(cores=(0, 1, 2, 3))}, network="none")
    assert seat.cores == cores
    on_gpus = trial.model_copy(update={"device": "gpu", "cpus_per_worker": None})
    (seat,) = assign_seats(on_gpus, {"here": examples.gpu_node(4)}, network="none")
    assert seat.gpus == cores


def test_trainings_that_share_have_the_same_devices():
    for case in ("sequential", "together"):
        trial = training(case, 2, world_size=2, shared=case == "together")
        (seat,) = assign_seats(trial, {"here": examples.node(cores=(0, 1))}, network="none")
        assert seat.cores == (0, 1)


def test_concurrent_trainings_form_a_group_per_repeat_and_others_run_alone():
    order = (("one", 1), ("sequential", 1), ("sequential", 2), ("together", 1), ("together", 2))
    trials = [training(case, number, repeat=repeat) for repeat in (1, 2) for case, number in order]
    trials.append(examples.trial(repeat=1))
    assert [len(group) for group in concurrent_groups(trials)] == [1, 1, 1, 2, 1, 1, 1, 2, 1]


def test_run_names_are_distinct():
    names = [cell(training(one.case, one.number, world_size=own)) for own, one in cases(2, (2,))]
    assert (names[0], names[2], names[3]) == ("2cpu-one", "2cpu-sequential-2of2", "1cpu-together-1of2")
    assert len(set(names)) == len(names)


RUNS = [
    run("one", 1, windows=[(0.0, 2.0), (2.0, 2.0)]),
    run("sequential", 1, windows=[(10.0, 4.0)]),
    run("sequential", 2, windows=[(20.0, 5.0)]),
    # The second began 1 s later and ended 2 s later: 10 s from the first window's start to the last window's end.
    run("together", 1, windows=[(100.0, 4.0), (104.0, 4.0)]),
    run("together", 2, windows=[(101.0, 9.0)]),
]


def test_a_case_takes_the_time_of_all_its_trainings():
    one, sequential, together = case_figures(RUNS)
    assert (one.total_s, one.trainings, one.samples) == ((4.0,), 1, 320)
    assert (sequential.total_s, sequential.samples) == ((9.0,), 640)
    assert (together.total_s, together.median_s) == ((10.0,), 10.0)


def test_an_incomplete_case_does_not_count():
    halves = [run("together", 1, windows=[(0.0, 4.0)]), run("together", 2, windows=[(0.0, 4.0)], valid=False)]
    (together,) = case_figures(halves)
    assert (together.total_s, together.median_s, together.samples) == ((), None, 0)
    assert together.reasons == ("a rank failed",)
    assert case_figures([]) == ()


def test_a_concurrent_training_is_no_baseline_and_has_none():
    beside = run("together", 1, windows=[(0.0, 4.0)])
    alone = (Path("alone"), record(run_id="alone", trial=examples.trial()))
    assert baseline_for(examples.trial(world_size=2), [beside]) is None
    assert baseline_for(examples.trial(world_size=2), [beside, alone]) == alone
    assert scaling(beside[1].trial, "x", beside[1], alone[1]).speedup is None


def test_the_tables_have_the_figures_of_all_cases():
    cases_ = case_figures(RUNS)
    found = concurrent(summarize(RUNS[:1]), cases_, name="m")
    text = found.markdown()
    assert "| one alone | 1 | 1 | 1 | 4 | 80 | 0.444 |" in text
    assert "| one after the other | 2 | 1 | 1 | 9 | 71.11 | 1.000 |" in text
    assert "| at once | 2 | 1 | 1 | 10 | 64 | 1.111 |" in text
    assert found.files()["m-concurrent.csv"].splitlines()[1:] == [
        "one,1,1,0,1,4.0,320",
        "sequential,2,1,0,1,9.0,640",
        "together,2,1,0,1,10.0,640",
    ]


def test_trainings_of_different_work_have_no_ratio():
    """Each trained for the same time: at once took half of one after the other, at whatever rate."""
    one, sequential, together = case_figures(RUNS)
    found = concurrent(summarize(RUNS[:1]), (one, sequential, together.model_copy(update={"samples": 320})), name="m")
    assert "| at once | 2 | 1 | 1 | 10 | 32 | – |" in found.markdown()
    assert [note for note in found.notes if "no ratio" in note] == [found.notes[-1]]
