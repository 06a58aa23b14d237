"""A sweep whose scales are measured in windows of different lengths, a record that does not say how long its run was, a compiler that
works for minutes while nothing says so, and a run that is ended as silent while it does."""

import io
from pathlib import Path

import examples
import passes
import pytest
import scaled
from rich.console import Console
from wires import start

from runner.core.events import Pace
from runner.core.request import Request
from runner.core.trial import ProfilePass
from runner.report.progress import PlainProgress
from runner.run.execute import SEARCH_SILENCE_S, SILENCE_S, Limits
from runner.run.trial_runner import Watch, alike, as_run


def pace(iterations, window):
    return Pace(event="pace", rank=0, t=1.0, received=1.0, container="c", iterations=iterations, window=window)


def asked(trial, **changes):
    """A trial of a plan that leaves its length to the program; 0.001 epochs an iteration."""
    return trial.model_copy(update={"iterations": 0, "window": 0, "measure_s": 12.0, "epochs": 0.001, **changes})


_, RECORD = scaled.ran("resnet18", 1, 100.0)
ONE = asked(RECORD.trial)
TWO = asked(RECORD.trial, world_size=2)


def ran(trial, **changes):
    return Path("one"), RECORD.model_copy(update={"trial": trial, **changes})


def test_a_record_says_how_many_iterations_its_program_chose():
    run = as_run(ONE, [pace(600, 40)])
    assert (run.iterations, run.window, run.measure_s) == (600, 40, 12.0)
    assert run.epochs == pytest.approx(0.6)
    given = ONE.model_copy(update={"iterations": 7, "window": 2})
    assert as_run(given, [pace(600, 40)]) == given
    assert as_run(ONE, []).iterations == 1  # it died before it chose: no division by nothing


def test_other_scales_have_the_windows_of_the_first_run():
    first = as_run(ONE, [pace(600, 40)])
    assert alike(TWO, [ran(first)]) == TWO.model_copy(update={"window": 40})
    assert alike(TWO, []) == TWO
    assert alike(TWO.model_copy(update={"key": "other"}), [ran(first)]).window == 0


def test_workers_that_can_not_agree_do_as_many_iterations_as_one():
    kvstore = asked(RECORD.trial, world_size=2, iterations=24, window=1, epochs=0.024)
    found = alike(kvstore, [ran(as_run(ONE, [pace(600, 40)]))])
    assert (found.iterations, found.window) == (600, 40)
    assert found.epochs == pytest.approx(0.6)


def test_a_length_that_was_given_and_a_pass_under_a_profiler_stay_as_they_are():
    first = ran(as_run(ONE, [pace(600, 40)]))
    given = RECORD.trial.model_copy(update={"world_size": 2})
    profiled = TWO.model_copy(update={"profile": ProfilePass(kind="kernels", after=None, iterations=5, region=None)})
    assert [alike(one, [first]) for one in (given, profiled)] == [given, profiled]


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
        ((), None, SILENCE_S),
        (("compile",), None, SILENCE_S),
        (("compile", "kernel-search"), None, SEARCH_SILENCE_S),
        (("compile", "kernel-search"), 30, 30),
    ],
)
def test_a_search_among_kernels_may_stay_silent_for_longer(techniques, asked, silence_s):
    trial = examples.trial(framework="pytorch", techniques=techniques)
    assert Limits.of(Request(inactivity_timeout_s=asked), trial).silence_s == silence_s
    assert Limits.of(Request(), passes.trial("memory", ranks=1)).silence_s == SILENCE_S
