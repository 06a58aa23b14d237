"""What dead runners left outside Docker: real processes, and a fake Podman.

Prevents: a job without a container that `clean` misses, since only its environment names its owner; a live runner's processes killed with a
dead one's; processes that survive because they start while others are killed; containers of others that Podman lists.
"""

import contextlib
import json
import os
import subprocess
import sys
from typing import ClassVar

import psutil
import pytest
from waiting import wait_until

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.engines.base import EngineError, EngineRefusedError
from runner.engines.leftovers import InPodman, InProcesses
from runner.engines.process import CommandError, ask_here

RUN = f"20260101T000000Z-{os.getpid()}-leftovers"
# Leaves an orphan in a session of its own, whose command line does not reveal its owner.
LEAVES = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"


@pytest.fixture
def started():
    """A function that starts a runner's job, which leaves a process behind, and returns its run's id."""
    runs = []

    def start(runner):
        run = f"{RUN}-{runner}"
        environment = {**os.environ, "DLSCALE_RUN_ID": run, "DLSCALE_RUNNER": runner}
        subprocess.run([sys.executable, "-c", LEAVES], env=environment, check=True)
        runs.append(run)
        return run

    yield start
    for run in runs:
        for pid in marked(run):
            os.kill(pid, 9)


def marked(run):
    return [one.pid for one in psutil.process_iter() if environ(one).get("DLSCALE_RUN_ID") == run]


def environ(process):
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}


def test_processes_are_found_by_their_environment_and_only_one_runners_are_killed(started):
    places = InProcesses(ask_here)
    dead, alive = started("boot.1.2.3.4"), started("boot.1.2.3.5")
    assert wait_until(lambda: marked(dead) and marked(alive), 10)
    found = {thing.run: thing for thing in places.find()}
    thing = found[dead]
    assert (thing.kind, thing.runner, thing.name) == ("process", "boot.1.2.3.4", f"processes of {dead}")
    assert not places.remove(thing, force=False)
    assert marked(dead)
    assert places.remove(thing, force=True)
    assert marked(dead) == []
    assert marked(alive)
    assert dead not in {thing.run for thing in places.find()}
    assert not places.remove(thing, force=True), "it was gone already"


def test_processes_in_a_jobs_session_are_killed_with_it_but_never_the_callers_session(started):
    """The environment of Apptainer's own processes does not name their owner, and they survived the job that they were stopped with."""
    runner = "boot.1.2.3.6"
    dead = {**os.environ, "DLSCALE_RUN_ID": started(runner), "DLSCALE_RUNNER": runner}
    words = ("sh", "-c", f"DLSCALE_RUNNER={runner} DLSCALE_RUN_ID=x sleep 600 & exec sleep 600")
    with subprocess.Popen(words, start_new_session=True) as leader, subprocess.Popen(("sleep", "600"), env=dead) as own:
        try:
            assert wait_until(lambda: len(marked("x")) == 1, 10)
            places = InProcesses(ask_here)
            thing = next(one for one in places.find() if one.run == dead["DLSCALE_RUN_ID"])
            assert places.remove(thing, force=True)
            assert (leader.wait(10), own.wait(10)) == (-9, -9)
            assert marked("x") == []
        finally:
            leader.kill()
            own.kill()


class OnePod:
    """A Podman with one container, which is gone only after `needs` removals; each reports success."""

    ONE: ClassVar = {
        "Id": "c1",
        "Names": ["dlscale-x"],
        "State": "created",
        "Labels": {LABEL_RUN: "x", LABEL_RUNNER: "me"},
    }

    def __init__(self, needs):
        self.needs = needs
        self.removals = []

    def __call__(self, argv):
        if argv[1] == "rm":
            self.removals.append(argv[2:])
        here = len(self.removals) < self.needs
        if "--format=json" in argv:
            return json.dumps([self.ONE] if here else [])
        return "c1\n" if argv[1] == "rm" or here else ""


def test_podman_lists_containers_with_the_label():
    (thing,) = InPodman(OnePod(1)).find()
    assert (thing.kind, thing.name, thing.run, thing.runner, thing.status) == (
        *("container", "dlscale-x", "x"),
        *("me", "created"),
    )


@pytest.mark.parametrize(("force", "words"), [(False, ()), (True, ("--force", "--depend", "--time=0"))])
@pytest.mark.parametrize("needs", [1, 3])
def test_podman_removes_a_container_by_force_with_its_network_until_it_is_gone(force, words, needs):
    podman = OnePod(needs)
    (thing,) = InPodman(podman).find()
    assert InPodman(podman).remove(thing, force=force)
    assert podman.removals == [("--ignore", "--volumes", *words, "c1")] * needs


def test_a_container_that_podman_never_removes_is_an_error():
    podman = OnePod(10**6)
    (thing,) = InPodman(podman).find()
    with pytest.raises(EngineRefusedError, match="dlscale-x"):
        InPodman(podman).remove(thing, force=True)


def test_a_podman_that_does_not_answer_says_why():
    def broken(argv):
        raise CommandError(argv, 125, "Error: no such storage\n")

    with pytest.raises(EngineError, match="Error: no such storage"):
        InPodman(broken).find()
