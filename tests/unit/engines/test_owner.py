"""Ownership. Prevents: a live runner's things taken for a dead one's, because it is on another host, in another PID namespace, another user's,
or has the process id of one that died; a dead runner's things kept, because it is a zombie or its process id was reused.
"""

import os
import subprocess
import sys
import types

import pytest
from examples import ROOT

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.engines import owner

WAITS = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from runner.engines.owner import this_process; print(this_process(), flush=True); input()"


@pytest.fixture
def other():
    """Another live process, with its own owner id as `owner`."""
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.owner = process.stdout.readline().strip()
    yield process
    process.kill()
    process.communicate()


def changed(text, place, value):
    words = text.split(".")
    words[place] = value
    return ".".join(words)


def test_a_runner_is_alive_until_it_is_killed(other):
    assert owner.state(owner.this_process()) == "alive"
    assert owner.state(other.owner) == "alive"
    assert other.owner != owner.this_process()
    assert owner.signed({LABEL_RUN: "run"}) == {LABEL_RUN: "run", LABEL_RUNNER: owner.this_process()}
    assert owner.state(changed(other.owner, -1, "1")) == "gone"  # its process id was reused
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert owner.state(other.owner) == "gone"
    other.wait()
    assert owner.state(other.owner) == "gone"


@pytest.mark.parametrize("place", [0, 1, 2], ids=["boot, and so the host", "PID namespace", "time namespace"])
def test_the_state_of_a_runner_elsewhere_is_unknown(other, place):
    """A live run on another host lost its things, since no process here had its id."""
    elsewhere = {0: "00000000-0000-0000-0000-000000000000", 1: "1", 2: "1"}[place]
    assert owner.state(changed(other.owner, place, elsewhere)) == "unknown"
    other.kill()
    other.wait()
    assert owner.state(changed(other.owner, place, elsewhere)) == "unknown"


@pytest.mark.parametrize("told", [None, "", "x", "1.2.3", "a.b.c.d.e", f"{'0' * 36}.1.1.99999999999.1"])
def test_an_invalid_owner_is_unknown(told):
    assert owner.state(told) == "unknown"


def test_another_users_runner_is_alive(other, monkeypatch):
    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(owner.os, "kill", refuse)
    assert owner.state(other.owner) == "alive"


def test_a_proc_that_hides_processes_makes_their_state_unknown(other, monkeypatch):
    """`hidepid=2`: another user's process exists, but has no folder."""

    def hidden(pid):
        raise FileNotFoundError

    here = owner.this_process()
    monkeypatch.setattr(owner, "_process_stat", hidden)
    assert owner.state(other.owner) == "unknown"
    assert owner.state(here) == "unknown"
    assert owner.this_process() is None


def test_with_the_proc_of_another_namespace_there_is_no_owner(other, monkeypatch):
    """`unshare --pid` alone keeps the outer /proc, in which this process has another id."""
    monkeypatch.setattr(owner, "os", types.SimpleNamespace(getpid=lambda: os.getpid() + 1, kill=os.kill))
    assert owner.this_process() is None
    assert owner.state(other.owner) == "unknown"
    assert owner.signed({LABEL_RUN: "run"}) == {LABEL_RUN: "run"}
