"""Prevents: a compiler that works for minutes while nothing says so, and a run that is ended as silent while it does."""

import io

import examples
import passes
import pytest
from rich.console import Console
from wires import start

from runner.core.request import Request
from runner.report.progress import PlainProgress
from runner.run.execute import SEARCH_SILENCE_S, SILENCE_S, Limits
from runner.run.watch import Watch

COMPILED = {"framework": "pytorch", "techniques": ("compile",)}


@pytest.mark.parametrize(("facts", "said"), [({}, "first step\n"), (COMPILED, "first step (compiles for minutes")])
def test_a_first_step_that_compiles_says_so(facts, said):
    file = io.StringIO()
    Watch(PlainProgress(Console(file=file, width=400)), examples.trial(**facts))(start())
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


def test_a_pass_may_be_as_silent_as_any_run():
    assert Limits.of(Request(), passes.trial("memory", ranks=1)).silence_s == SILENCE_S
