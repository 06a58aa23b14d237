"""Prevents: scales of a sweep with windows of different lengths, a record without the length of its run, a compiler that works for minutes
unannounced, and a run that is ended as silent while it compiles.

Also prevents: reusing a run of another trial, and an interrupted matrix that starts over.
"""

import io
from pathlib import Path

import examples
import passes
import pytest
import scaled
from records import record
from rich.console import Console
from wires import start

from runner.core.events import Pace
from runner.core.record import ImageUsed
from runner.core.request import Request
from runner.core.trial import Counting, ProfilePass
from runner.plan.profiling import MAX_REPLAYED
from runner.report.progress import PlainProgress
from runner.results.store import read_record, write_record
from runner.run.execute import INACTIVITY_S, SEARCH_INACTIVITY_S, Limits
from runner.run.trial_runner import RecordedRuns, Watch, with_equal_windows, with_length, with_replay_limited


def pace(iterations, window):
    return Pace(event="pace", rank=0, t=1.0, received=1.0, container="c", iterations=iterations, window=window)


def asked(trial, **changes):
    """A planned trial that leaves its length to the program, with 0.001 epochs per iteration."""
    return trial.model_copy(update={"iterations": 0, "window": 0, "measure_s": 12.0, "epochs": 0.001, **changes})


_, RECORD = scaled.ran("resnet18", 1, 100.0)
ONE = asked(RECORD.trial)
TWO = asked(RECORD.trial, world_size=2)


def ran(trial, **changes):
    return Path("one"), RECORD.model_copy(update={"trial": trial, **changes})


def test_a_record_has_the_iterations_that_its_program_chose():
    run = with_length(ONE, [pace(600, 40)])
    assert (run.iterations, run.window, run.measure_s) == (600, 40, 12.0)
    assert run.epochs == pytest.approx(0.6)
    given = ONE.model_copy(update={"iterations": 7, "window": 2})
    assert with_length(given, [pace(600, 40)]) == given
    assert with_length(ONE, []).iterations == 1  # failed before choosing: no division by zero


def test_other_scales_have_the_windows_of_the_first_run():
    first = with_length(ONE, [pace(600, 40)])
    assert with_equal_windows(TWO, [ran(first)]) == TWO.model_copy(update={"window": 40})
    assert with_equal_windows(TWO, []) == TWO
    assert with_equal_windows(TWO.model_copy(update={"key": "other"}), [ran(first)]).window == 0


def test_workers_that_cannot_agree_on_a_length_take_the_one_device_runs():
    kvstore = asked(RECORD.trial, world_size=2, iterations=24, window=1, epochs=0.024)
    found = with_equal_windows(kvstore, [ran(with_length(ONE, [pace(600, 40)]))])
    assert (found.iterations, found.window) == (600, 40)
    assert found.epochs == pytest.approx(0.6)


def test_a_given_length_and_a_profiling_pass_stay_unmodified():
    first = ran(with_length(ONE, [pace(600, 40)]))
    given = RECORD.trial.model_copy(update={"world_size": 2})
    profiled = TWO.model_copy(update={"profile": ProfilePass(kind="kernels", after=None, iterations=5, region=None)})
    assert [with_equal_windows(one, [first]) for one in (given, profiled)] == [given, profiled]


@pytest.mark.parametrize(
    ("techniques", "said"), [((), "first step\n"), (("compile",), "first step (compiles for minutes")]
)
def test_a_first_step_that_compiles_says_so(techniques, said):
    file = io.StringIO()
    trial = examples.trial(framework="pytorch", techniques=techniques)
    Watch(PlainProgress(Console(file=file, width=400)), trial)(start())
    assert said in file.getvalue()


@pytest.mark.parametrize(
    ("techniques", "asked", "silence_s"),
    [
        ((), None, INACTIVITY_S),
        (("compile",), None, INACTIVITY_S),
        (("compile", "kernel-search"), None, SEARCH_INACTIVITY_S),
        (("compile", "kernel-search"), 30, 30),
    ],
)
def test_a_kernel_search_may_stay_silent_for_longer(techniques, asked, silence_s):
    trial = examples.trial(framework="pytorch", techniques=techniques)
    assert Limits.of(Request(inactivity_timeout_s=asked), trial).silence_s == silence_s
    assert Limits.of(Request(), passes.trial("memory", ranks=1)).silence_s == INACTIVITY_S


IMAGE = ImageUsed(reference="dlscale/mxnet:1.9.1", id="sha256:1", digest=None, lock_sha256="a" * 64)


def leave(out, **changes):
    made = record(**changes)
    (out / made.run_id).mkdir()
    write_record(out / made.run_id, made)
    return made


def test_the_newest_run_of_an_equal_trial_in_the_same_image_is_reused(tmp_path):
    leave(tmp_path, run_id="20260101T000000Z-aaaa")
    newer = leave(tmp_path, run_id="20260102T000000Z-aaaa")
    found = RecordedRuns(tmp_path).find(examples.trial(), IMAGE)
    assert found == (tmp_path / newer.run_id, newer)


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 2},
        {"world_size": 2},
        {"batch_per_device": 16},
        {"link": {"rate_mbit": 1000.0, "emulated": True}},
        {"strategy": "kvstore"},
        {"profile": {"kind": "kernels", "after": None, "iterations": 5, "region": None}},
        {"concurrent": {"trainings": 2, "case": "together", "number": 1}},
        {"key": "f" * 16},
    ],
)
def test_a_run_of_another_trial_is_not_reused(tmp_path, changes):
    leave(tmp_path, trial=examples.trial())
    assert RecordedRuns(tmp_path).find(examples.trial(**changes), IMAGE) is None


def test_a_run_in_another_image_is_not_reused(tmp_path):
    leave(tmp_path)
    memory = RecordedRuns(tmp_path)
    assert memory.find(examples.trial(), IMAGE.model_copy(update={"id": "sha256:2"})) is None
    assert memory.find(examples.trial(), IMAGE.model_copy(update={"lock_sha256": "b" * 64})) is None


def test_an_invalid_run_is_repeated_and_a_degraded_one_is_reused(tmp_path):
    leave(tmp_path, run_id="invalid", status="invalid")
    assert RecordedRuns(tmp_path).find(examples.trial(), IMAGE) is None
    leave(tmp_path, run_id="degraded", status="degraded")
    assert RecordedRuns(tmp_path).find(examples.trial(), IMAGE)[1].run_id == "degraded"


def test_an_interrupted_matrix_resumes_with_adaptive_length_on_other_nodes(tmp_path):
    def placed(*nodes, kind="ethernet"):
        wires = [examples.wire(number, kind=kind) for number in range(1, 3)]
        return [{"node": node, "devices": 1, "wire": wire} for node, wire in zip(nodes, wires, strict=True)]

    planned = {"world_size": 2, "nodes": 2, "measure_s": 12.0, "epochs": 0.5}
    leave(
        tmp_path,
        trial=examples.trial(**planned | {"iterations": 70, "window": 7, "epochs": 35.0}, placement=placed("n1", "n2")),
    )
    runs = RecordedRuns(tmp_path)
    asked = planned | {"iterations": 0, "window": 0}
    assert runs.find(examples.trial(**asked, placement=placed("n3", "n4")), IMAGE) is not None
    assert runs.find(examples.trial(**asked, placement=placed("n3", "n4", kind="infiniband")), IMAGE) is None
    assert runs.find(examples.trial(**asked | {"measure_s": 30.0}, placement=placed("n3", "n4")), IMAGE) is None


def test_the_sampler_reads_the_counters_of_a_step_with_too_many_kernels():
    """The kernels pass of the same training, here on an H200, has the number; a pass on other devices does not count."""
    (path,) = (examples.ROOT / "results/h200/tbd-analysis").glob("*-1a35-*-profile-kernels-r1")
    run = path, read_record(path)
    step = run[1].profile.gpu_total.kernels_per_step
    assert step > 100

    def metrics(iterations, **changes):
        counting = Counting.model_validate(passes.NCU)
        profile = run[1].trial.profile.model_copy(
            update={"kind": "metrics", "iterations": iterations, "counting": counting}
        )
        return run[1].trial.model_copy(update={"profile": profile, **changes})

    few, many = metrics(1), metrics(int(MAX_REPLAYED / step) + 1)
    assert with_replay_limited(many, [run]).profile.counting.source == "sampler"
    assert (with_replay_limited(few, [run]), with_replay_limited(many, [])) == (few, many)
    assert with_replay_limited(two := metrics(many.profile.iterations, world_size=2), [run]) == two
    assert with_replay_limited(run[1].trial, [run]) == run[1].trial
