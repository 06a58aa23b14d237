"""Prevents: a worker with another's number or cluster, a failure blamed on the wrong worker or hidden behind exit code 0, altered event
lines, a standard error without the worker's number, workers that outlive a failure, a signal or the launcher."""

import ctypes
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import events
import pytest

PROGRAM = Path(events.__file__).parent / "tf_workers.py"
PR_SET_CHILD_SUBREAPER = 36
CLUSTER = "10.0.0.1:7001,10.0.0.1:7002,10.0.0.2:7001,10.0.0.2:7002"


def command(code, *, host=0, count=2, cluster=CLUSTER):
    flags = [f"--cluster={cluster}", f"--host={host}", f"--count={count}"]
    return [sys.executable, str(PROGRAM), *flags, sys.executable, "-c", code]


def run(code, **flags):
    return subprocess.run(command(code, **flags), capture_output=True, text=True, timeout=60)


def wait_for(path, lines):
    """Lines that workers have written to a file, once there are so many."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and len(found := path.read_text().splitlines()) == lines:
            return [int(pid) for pid in found]
        time.sleep(0.02)
    raise AssertionError(f"{path} never had {lines} lines")


def gone(pids):
    """Whether all processes exit within half a minute; an unreaped zombie has exited too."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        states = [Path(f"/proc/{pid}/stat") for pid in pids]
        try:
            alive = [stat for stat in states if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"]
        except OSError:  # it exited in the meantime
            continue
        if not alive:
            return True
        time.sleep(0.02)
    return False


# Each worker, and a child of it that ignores SIGTERM, record their process ids and stay.
STAY = """
import os, signal, subprocess, sys, time
code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), file=open({path!r}, 'a')); time.sleep(300)"
subprocess.Popen([sys.executable, "-c", code])
print(os.getpid(), file=open({path!r}, "a"), flush=True)
{then}
"""


def test_each_worker_gets_its_number_and_the_whole_cluster():
    # One write per line: workers share the pipe.
    code = "import os, sys; sys.stdout.write(os.environ['TF_CONFIG'] + ' ' + os.environ['LOCAL_RANK'] + chr(10))"
    done = run(code, host=1)
    assert done.returncode == 0, done.stderr
    found = sorted(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    cluster = {"worker": CLUSTER.split(",")}
    assert [json.loads(config) for config, _ in found] == [
        {"cluster": cluster, "task": {"type": "worker", "index": 2}},
        {"cluster": cluster, "task": {"type": "worker", "index": 3}},
    ]
    assert [local_rank for _, local_rank in found] == ["0", "1"]


def test_events_pass_unchanged_and_standard_error_is_tagged():
    # One write per line, as in `Events`: workers share the pipe.
    code = "import os, sys; sys.stdout.write('::dlscale:: {}' + chr(10)); print('worker', os.environ['LOCAL_RANK'], file=sys.stderr)"
    done = run(code, host=1)
    assert done.stdout == "::dlscale:: {}\n::dlscale:: {}\n"
    assert sorted(done.stderr.splitlines()) == ["[2]<stderr>:worker 0", "[3]<stderr>:worker 1"]


@pytest.mark.parametrize(("then", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
def test_a_failed_worker_is_named_and_the_others_are_ended(tmp_path, then, code):
    path = str(tmp_path / "pids")
    fail = f"time.sleep(1); {then} if os.environ['LOCAL_RANK'] == '1' else time.sleep(300)"
    done = run(STAY.format(path=path, then=fail))
    assert done.returncode == 1
    assert f"tf_workers: worker 1 ended with exit code {code}" in done.stderr.splitlines()
    assert gone([int(pid) for pid in Path(path).read_text().splitlines()])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(tmp_path, number):
    path = tmp_path / "pids"
    launcher = subprocess.Popen(command(STAY.format(path=str(path), then="time.sleep(300)")))
    pids = wait_for(path, 4)
    launcher.send_signal(number)
    assert launcher.wait(timeout=30) == 128 + number
    assert gone(pids)


def test_workers_die_with_the_launcher(tmp_path):
    """After `kill -9` nothing can clean up, so the kernel has to kill the workers."""
    path = tmp_path / "pids"
    code = f"import os, time; print(os.getpid(), file=open({str(path)!r}, 'a'), flush=True); time.sleep(300)"
    launcher = subprocess.Popen(command(code))
    pids = wait_for(path, 2)
    launcher.kill()
    launcher.wait()
    assert gone(pids)


def test_an_orphan_reparented_to_the_launcher_is_not_a_failure():
    """If the launcher is the first process of a container, its workers' orphans are reparented to it."""
    leave = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', '1 / 0'], stderr=-3); time.sleep(0 if {} else 1)"
    code = leave.format("__import__('os').environ['LOCAL_RANK'] == '0'")
    adopt = lambda: ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # noqa: E731
    done = subprocess.run(command(code), capture_output=True, text=True, timeout=60, preexec_fn=adopt)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"host": 2}, "workers 4 to 5 requested, --cluster lists 0 to 3"),
        ({"count": 0}, "workers 0 to -1 requested"),
        ({"cluster": "10.0.0.1,10.0.0.2:1"}, "is not HOST:PORT"),
    ],
)
def test_workers_outside_the_cluster_are_refused(flags, words):
    done = run("", **flags)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_missing_program_is_named():
    flags = [f"--cluster={CLUSTER}", "--host=0", "--count=1"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *flags, "/nowhere/python3"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (127, "tf_workers: /nowhere/python3: No such file or directory\n")
