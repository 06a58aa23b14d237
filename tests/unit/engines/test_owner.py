"""Whose a thing is. Prevents: the things of a live runner taken for a dead one's, because it is on another host, in another PID namespace,
somebody else's, or has the number of one that died; those of a dead one kept, because it is a zombie or its number was given again.
"""

import os
import subprocess
import sys
import types

import pytest
from examples import ROOT

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.engines import owner

WAITS = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from runner.engines.owner import own; print(own(), flush=True); input()"


@pytest.fixture
def other():
    """Another process that lives, and who it says it is."""
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
    assert owner.state(owner.own()) == "alive"
    assert owner.state(other.owner) == "alive"
    assert other.owner != owner.own()
    assert owner.signed({LABEL_RUN: "run"}) == {LABEL_RUN: "run", LABEL_RUNNER: owner.own()}
    assert owner.state(changed(other.owner, -1, "1")) == "gone"  # its number was given again to another
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert owner.state(other.owner) == "gone"
    other.wait()
    assert owner.state(other.owner) == "gone"


@pytest.mark.parametrize("place", [0, 1, 2], ids=["boot, and so the host", "PID namespace", "time namespace"])
def test_of_a_runner_elsewhere_nothing_is_known(other, place):
    """A live run on another host whose things were removed, as no process here has its number."""
    elsewhere = {0: "00000000-0000-0000-0000-000000000000", 1: "1", 2: "1"}[place]
    assert owner.state(changed(other.owner, place, elsewhere)) == "unknown"
    other.kill()
    other.wait()
    assert owner.state(changed(other.owner, place, elsewhere)) == "unknown"


@pytest.mark.parametrize("told", [None, "", "x", "1.2.3", "a.b.c.d.e", f"{'0' * 36}.1.1.99999999999.1"])
def test_what_is_no_owner_is_unknown(told):
    assert owner.state(told) == "unknown"


def test_somebody_elses_runner_is_alive(other, monkeypatch):
    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(owner.os, "kill", refuse)
    assert owner.state(other.owner) == "alive"


def test_a_proc_that_hides_others_says_nothing(other, monkeypatch):
    """`hidepid=2`: a process of another user is there and has no folder."""

    def hidden(pid):
        raise FileNotFoundError

    here = owner.own()
    monkeypatch.setattr(owner, "_process_stat", hidden)
    assert owner.state(other.owner) == "unknown"
    assert owner.state(here) == "unknown"
    assert owner.own() is None


def test_a_proc_of_another_namespace_makes_nobody_an_owner(other, monkeypatch):
    """`unshare --pid` alone leaves the outer /proc, where this process has another number."""
    monkeypatch.setattr(owner, "os", types.SimpleNamespace(getpid=lambda: os.getpid() + 1, kill=os.kill))
    assert owner.own() is None
    assert owner.state(other.owner) == "unknown"
    assert owner.signed({LABEL_RUN: "run"}) == {LABEL_RUN: "run"}
