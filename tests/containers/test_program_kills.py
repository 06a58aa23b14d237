"""What `kill -9` of the runner leaves behind if no engine's service can end a job: Podman as a program, Apptainer, a virtual environment.

Prevents: a job that runs forever because nobody holds its lease; a container that was created and never started; a half-written record;
earlier records that are lost. `make torture ENGINE=podman KILLS=20` kills more often than `make test`, at the same moments and more.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from commands import QUICK, ROOT, replaced
from environments import environment_of
from killed import GONE_S, check_whole, deeds_of, how_many, kill
from testbed import apptainer
from waiting import wait_until

from runner.core.errors import RequestError
from runner.results.store import EVENTS, PLAN, RECORD

# A scheduler whose network the others share, a server and two workers: one that stays can block the next.
RUN = ("--framework=mxnet", "--strategy=kvstore", "--kvstore=dist_sync", "--workers=2", *QUICK)


def with_apptainer():
    """The suite's environment with Apptainer and an image for it."""
    try:
        environment = apptainer.environment(ROOT)
    except RequestError as error:
        pytest.skip(str(error))
    argv = (sys.executable, "-m", "runner.commands", "images", "sif", "mxnet:1.9.1")
    subprocess.run(argv, cwd=ROOT, env=environment, check=True, capture_output=True)
    return environment


@pytest.fixture(scope="module", params=["podman", "apptainer", "venv"])
def engine(request, client):
    """An engine's name, and the suite's environment for it; images come from Docker."""
    if request.param == "podman":
        return request.param, {**os.environ, **request.getfixturevalue("podman")}
    if request.param == "apptainer":
        return request.param, with_apptainer()
    environment_of("mxnet")
    return request.param, dict(os.environ)


def containers(environment):
    argv = ("podman", "ps", "--all", "--format=json")
    return json.loads(subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout or "[]")


def processes(*marks):
    """Live processes with one of these expressions in their arguments or environment."""
    sought = re.compile("|".join(marks).encode())
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            if words and sought.search(words + (entry / "environ").read_bytes()):
                found.append((entry.name, words.replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            continue
    return found


def left(engine, pid):
    """Processes and containers of the runner with this process id: an owner's id ends in the process id and its start time."""
    name, environment = engine
    mine = rf"[0-9a-f-]{{36}}\.\d+\.\d+\.{pid}\.\d+"
    held = containers(environment) if name == "podman" else []
    return [*processes(mine), *(one["Names"][0] for one in held if re.search(mine, json.dumps(one["Labels"])))]


def test_kill_9_leaves_no_process_and_no_half_written_record(engine, tmp_path):
    name, environment = engine
    words, codes = (*RUN, f"--engine={name}", f"--out={tmp_path}"), (0, 4)
    deeds = deeds_of(words, environment, codes=codes)
    earlier = {path: path.read_bytes() for path in tmp_path.glob(f"*/{RECORD}")}
    assert earlier
    kill(words, deeds, environment, left=partial(left, engine), count=how_many(3), at_once=2, codes=codes)
    assert {path: path.read_bytes() for path in earlier} == earlier
    check_whole(tmp_path)
    assert wait_until(lambda: not processes(re.escape(str(tmp_path))), GONE_S), processes(re.escape(str(tmp_path)))
    if name == "podman":
        assert containers(environment) == []
        for kind in ("volume", "pod"):
            argv = ("podman", kind, "ls", "--quiet")
            assert subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout == ""


def test_clean_removes_apptainers_own_processes_with_a_suspended_job(tmp_path):
    """Suspended with their job, as by Slurm, they do not notice that it was killed, and their environment does not identify them."""
    environment = with_apptainer()
    argv = [sys.executable, "-m", "runner.commands"]
    words = ["bench", *replaced(RUN, "--workers=1", "--iterations=100000"), "--engine=apptainer", f"--out={tmp_path}"]
    both = {"cwd": ROOT, "env": environment}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*argv, *words], **both, **quiet) as runner:
        try:
            assert wait_until(lambda: any("first_step" in one.read_text() for one in tmp_path.glob(f"*/{EVENTS}")), 90)
            held = psutil.Process(runner.pid).children(recursive=True)
            for process in held:
                process.suspend()
        finally:
            runner.kill()
    (run,) = (path.parent.name for path in tmp_path.glob(f"*/{PLAN}"))
    assert {"appinit", "squashfuse_ll"} <= {process.name() for process in held}
    try:
        done = subprocess.run([*argv, "clean"], **both, capture_output=True, text=True, check=True)
        assert f"removed processes of {run}" in done.stdout.splitlines()
        assert wait_until(lambda: not [one for one in held if one.is_running() and one.status() != "zombie"], 10)
    finally:
        for process in held:
            with suppress(psutil.NoSuchProcess):
                process.kill()
