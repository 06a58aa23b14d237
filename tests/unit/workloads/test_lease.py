"""Prevents: a job that outlives an unreachable runner, a job ended although its runner is there, an exit code
lost on the way, leftover processes of the job, keys that outlive the job or that others may read."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[3] / "workloads"
FOREVER = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)"
ENDED = 143


def start(*options, program=FOREVER, words=()):
    return subprocess.Popen(
        [sys.executable, str(WORKLOADS / "lease.py"), *options, sys.executable, "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def lease():
    """Start programs under the lease; kill them all at the end of the test."""
    started = []

    def begin(*options, **more):
        started.append(start(*options, **more))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def program_of(process):
    return int(process.stdout.readline())


def gone(pid):
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


def test_a_missing_heartbeat_ends_the_job_with_a_message(lease):
    process = lease("--heartbeat=0.5")
    pid = program_of(process)
    assert process.wait(30) == ENDED
    assert process.stderr.read() == b"lease: nothing heard from the runner for 0.5 s\n"
    assert gone(pid)


def test_each_byte_renews_the_lease(lease):
    process = lease("--heartbeat=2")
    pid = program_of(process)
    for _ in range(20):  # twice the heartbeat timeout
        process.stdin.write(b".")
        process.stdin.flush()
        time.sleep(0.2)
        assert process.poll() is None
    process.stdin.close()
    assert process.wait(30) == ENDED
    assert process.stderr.read() == b""
    assert gone(pid)


def test_without_heartbeat_silence_does_not_end_the_job(lease):
    process = lease()
    program_of(process)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)


@pytest.mark.parametrize("options", [(), ("--heartbeat=60",)])
def test_the_closed_pipe_of_a_dead_runner_ends_the_job_immediately(lease, options):
    process = lease(*options)
    pid = program_of(process)
    process.stdin.close()
    assert process.wait(30) == ENDED
    assert process.stderr.read() == b""
    assert gone(pid)


@pytest.mark.parametrize("options", [(), ("--heartbeat=60",)])
def test_the_exit_code_is_the_programs_own(lease, options):
    assert lease(*options, program="raise SystemExit(7)").wait(30) == 7


def test_options_after_the_program_are_passed_to_it(lease):
    process = lease(program="import sys; print(sys.argv[1:])", words=("--heartbeat=0.01",))
    assert process.wait(30) == 0
    assert process.stdout.read() == b"['--heartbeat=0.01']\n"


SHOWN = "import os, pathlib, sys; at = pathlib.Path(sys.argv[1])\n"
SHOWN += "print(sorted((p.name, oct(p.stat().st_mode), p.read_text()) for p in at.iterdir()), flush=True)\n"


def send_keys(process, files):
    process.stdin.write(f"{json.dumps(files)}\n".encode())
    process.stdin.flush()


def test_keys_exist_only_while_the_program_runs_and_only_for_its_user(lease, tmp_path):
    process = lease(f"--keys={tmp_path}", program=SHOWN, words=(str(tmp_path),))
    send_keys(process, {"id": "a key\n", "ssh_config": "Host *\n"})
    assert process.wait(30) == 0
    assert (
        process.stdout.read().decode() == "[('id', '0o100600', 'a key\\n'), ('ssh_config', '0o100600', 'Host *\\n')]\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["killed runner", "SIGTERM", "silence"])
def test_a_lease_removes_its_keys_however_it_ends(lease, tmp_path, way):
    """Private keys were left by a killed run."""
    options = ("--heartbeat=3",) if way == "silence" else ()
    process = lease(*options, f"--keys={tmp_path}")
    send_keys(process, {"id": "a key\n"})
    pid = program_of(process)
    assert [path.name for path in tmp_path.iterdir()] == ["id"]
    if way == "killed runner":
        process.stdin.close()
    elif way == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    assert process.wait(30) == ENDED
    assert list(tmp_path.iterdir()) == []
    assert gone(pid)


@pytest.mark.parametrize("way", ["nothing", "half a line", "SIGTERM", "silence"])
def test_a_runner_that_dies_before_it_sends_the_keys_ends_the_lease(lease, tmp_path, way):
    process = lease("--heartbeat=1" if way == "silence" else "--heartbeat=60", f"--keys={tmp_path}")
    if way == "half a line":
        process.stdin.write(b'{"id": "a k')
    if way == "SIGTERM":
        # Before it installs its handlers, a signal kills it like any process.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    elif way != "silence":
        process.stdin.close()
    assert process.wait(30) in (ENDED, -signal.SIGTERM)
    assert process.stdout.read() == b""
    assert list(tmp_path.iterdir()) == []


def test_in_a_pod_the_job_continues_without_standard_input(lease):
    """A kubelet gives a container no standard input: its end would look like a dead runner."""
    process = lease("--pod=localhost", program="import time; time.sleep(0.5); print('done')")
    process.stdin.close()
    assert process.wait(30) == 0
    assert (process.stdout.read(), process.stderr.read()) == (b"done\n", b"")


def test_a_pod_that_waits_for_names_starts_nothing_and_ends_on_sigterm(lease):
    process = lease("--pod=no-such-pod.invalid")
    assert process.stderr.readline().startswith(b"lease: waiting for no-such-pod.invalid (")
    process.terminate()
    assert process.wait(30) == ENDED
    assert process.stdout.read() == b""


@pytest.mark.parametrize("first_byte", [b"", b"\n"])
def test_a_lease_that_requires_a_first_byte_starts_nothing_without_it(lease, first_byte, monkeypatch):
    """A container that Podman restarted for another, with nobody at its standard input, ran for ever."""
    monkeypatch.setenv("DLSCALE_LEASE_BEGIN", "5" if first_byte else "0.2")
    process = lease(program="print('begun')")
    process.stdin.write(first_byte)
    process.stdin.flush()
    assert process.wait(timeout=60) == (0 if first_byte else 143)
    assert process.stdout.read() == (b"begun\n" if first_byte else b"")
