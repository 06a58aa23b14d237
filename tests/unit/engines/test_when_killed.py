"""Prevents: a command for after the runner's death that runs although the runner ended in order, or never, or is itself ended by Ctrl-C."""

import os
import signal
import subprocess
import sys

import pytest
from waiting import wait_until

HELD = """\
import sys, time
from runner.engines.process import when_killed
with when_killed(("touch", sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_a_command_runs_if_its_process_is_killed_and_never_if_that_ends_in_order(tmp_path, killed):
    mark = tmp_path / "mark"
    argv = (sys.executable, "-c", HELD, str(mark))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(argv, **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        if killed:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(b"\n")
        assert process.returncode == (-signal.SIGKILL if killed else 0)
    assert wait_until(mark.exists, 10) if killed else not mark.exists()
