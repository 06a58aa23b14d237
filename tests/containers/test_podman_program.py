"""ENGINE=podman, by Podman's own command line, next to the machine's Docker.

Prevents: a worker that joins a network before it exists, a container that stays because it was ended before it started, a job that outlives
its runner.
"""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from commands import QUICK, ROOT, only, replaced, run_to_end
from waiting import wait_until

from runner.engines.boxes import Podman
from runner.results.store import read_plan

ON_TWO = ("--workers=2", "--engine=podman", *QUICK)
KVSTORE = ("bench", "--framework=mxnet", "--strategy=kvstore", "--kvstore=dist_sync", *ON_TWO)
# In each, the other containers join the first one's network.
JOINED = {"kvstore": KVSTORE, "ps": ("bench", "--framework=tensorflow", "--strategy=ps", *ON_TWO)}

# The first run in a storage loads its image, which takes several times as long on a busy machine.
LOADED_S = 300


def container_ids(podman, *words):
    argv = ("podman", "ps", "--quiet", "--all", *words)
    return subprocess.run(argv, env={**os.environ, **podman}, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module", params=JOINED)
def done(request, podman, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param)
    return run_to_end([*JOINED[request.param], f"--out={out}"], out=out, env=podman, only="scaled")


def test_a_run_with_parameter_servers_is_recorded_and_leaves_nothing(podman, done):
    assert done.code in (0, 4), done.stderr
    record = done.record(2)
    assert (record.engine, record.engine_details.confined, record.transport.used) == ("podman", True, "loopback")
    assert record.image.id
    assert container_ids(podman) == []


def test_a_container_started_only_by_those_that_share_its_network_ends_without_a_runner(podman, done):
    """No lease covers a container that was created before its runner was killed, and was started only by its worker, later."""
    first, *others = read_plan(done.out / done.record(2).run_id).containers
    last = next(one for one in others if one.network == f"container:{first.name}" and one.role == "worker")
    box = Podman(ROOT / "workloads", root=os.getuid() == 0, limits=True)
    words = box.argv(first)
    create = ["podman", "create", *words[words.index("run") + 1 :]]
    for argv in (create, box.argv(last)):
        made = {"stdin": subprocess.DEVNULL, "env": {**os.environ, **podman}}
        subprocess.run(argv, **made, capture_output=True, timeout=60)
    assert wait_until(lambda: not container_ids(podman, "--filter=status=running"), 30), container_ids(podman)
    subprocess.run(box.removal(first), env={**os.environ, **podman}, check=True, capture_output=True)


@contextmanager
def long_run(podman, out):
    """All containers of an endless run (a scheduler, a server and two workers), whose runner is ended by `kill -9` after the block."""
    argv = [sys.executable, *only("scaled"), *replaced(KVSTORE, "--iterations=100000"), f"--out={out}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    runner = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **podman}, **quiet)
    try:
        # A container that joins a network while that is paused or removed ends up in a state that Podman can't end.
        assert wait_until(lambda: len(container_ids(podman, "--filter=status=running")) == 4, LOADED_S)
        yield
    finally:
        runner.kill()
        runner.wait()


def test_kill_9_of_the_runner_leaves_no_container(podman, tmp_path):
    with long_run(podman, tmp_path):
        pass
    assert wait_until(lambda: not container_ids(podman), 30), container_ids(podman)


def test_clean_removes_paused_containers_of_a_killed_runner(podman, tmp_path):
    """A paused container can't end itself, and stays when its runner is killed."""
    both = {"cwd": ROOT, "env": {**os.environ, **podman}}

    def pause(container):
        """Pause as soon as possible: with cgroups v1, runc can't freeze a container ("unable to freeze") while it starts processes."""
        argv = ("podman", "pause", container)
        assert wait_until(lambda: not subprocess.run(argv, **both, check=False, capture_output=True).returncode, 60)

    with long_run(podman, tmp_path):
        held = container_ids(podman, "--filter=status=running")
        for container in held:
            pause(container)
    assert wait_until(lambda: set(container_ids(podman)) == set(held), LOADED_S), container_ids(
        podman, "--format={{.Names}} {{.Status}}"
    )
    done = subprocess.run(
        [sys.executable, "-m", "runner.commands", "clean"],
        **both,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "removed dlscale-" in done.stdout
    assert container_ids(podman) == []
