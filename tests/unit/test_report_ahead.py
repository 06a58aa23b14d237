"""Modules loaded ahead of a report while something is still measured, and names of modules that are none."""

import importlib.util
import io

import examples
import pytest
from rich.console import Console

from runner.core.events import Env, RunStop
from runner.core.trial import Concurrent
from runner.report import ahead
from runner.report.progress import PlainProgress
from runner.run import watch

STOP = RunStop(
    event="run_stop", t=1.0, received=1.0, container="w", rank=0, iterations=1, samples=1, parameter_norm=1.0
)
ENV = {"event": "env", "t": 1.0, "received": 1.0, "container": "w", "rank": 0, "python": "3", "framework": "pytorch"}
AT_ONCE = Concurrent(trainings=2, number=1, case="together")


@pytest.fixture
def loaded(monkeypatch):
    calls = []
    monkeypatch.setattr(ahead, "load", lambda: calls.append("load"))
    return calls


def test_they_are_loaded_when_a_training_has_ended(loaded):
    watch.Watch(PlainProgress(Console(file=io.StringIO())), examples.trial())(STOP)
    assert loaded == ["load"]


def test_they_are_not_while_other_trainings_may_go_on(loaded):
    watch.Watch(PlainProgress(Console(file=io.StringIO())), examples.trial(concurrent=AT_ONCE))(STOP)
    assert not loaded


@pytest.mark.parametrize(("device", "calls"), [("gpu", ["load"]), ("cpu", [])])
def test_they_are_loaded_before_a_gpu_trains_and_not_while_cores_do(loaded, device, calls):
    env = Env.model_validate({**ENV, "framework_version": "2", "device": device, "device_names": ["x"], "threads": 1})
    watch.Watch(PlainProgress(Console(file=io.StringIO())), examples.trial())(env)
    assert loaded == calls


def test_all_of_them_are_there():
    assert all(importlib.util.find_spec(name) for name in ahead.MODULES)
