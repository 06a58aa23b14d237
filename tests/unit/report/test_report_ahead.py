"""Prevents: modules preloaded for a report during a measurement; preloaded names that are not modules."""

import importlib.util
import io

import examples
import pytest
from rich.console import Console

from runner.core.events import Env, RunStop
from runner.core.trial import Concurrent
from runner.report import ahead
from runner.report.progress import PlainProgress
from runner.run import trial_runner

STOP = RunStop(
    event="run_stop", t=1.0, received=1.0, container="w", rank=0, iterations=1, samples=1, parameter_norm=1.0
)
ENV = {"event": "env", "t": 1.0, "received": 1.0, "container": "w", "rank": 0, "python": "3", "framework": "pytorch"}
AT_ONCE = Concurrent(trainings=2, number=1, case="together")


def env(device):
    return Env.model_validate({**ENV, "framework_version": "2", "device": device, "device_names": ["x"], "threads": 1})


@pytest.mark.parametrize(
    ("event", "trial", "calls"),
    [
        (STOP, examples.trial(), 1),
        (STOP, examples.trial(concurrent=AT_ONCE), 0),
        (env("gpu"), examples.trial(), 1),
        (env("cpu"), examples.trial(), 0),
    ],
    ids=["ended", "others may go on", "a GPU will train", "cores will train"],
)
def test_modules_are_preloaded_only_if_no_measurement_needs_the_cores(monkeypatch, event, trial, calls):
    loaded = []
    monkeypatch.setattr(ahead, "load", lambda: loaded.append("load"))
    trial_runner.Watch(PlainProgress(Console(file=io.StringIO())), trial)(event)
    assert len(loaded) == calls


def test_every_preloaded_module_exists():
    assert all(importlib.util.find_spec(name) for name in ahead.MODULES)
