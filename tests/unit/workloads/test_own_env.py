"""Prevents: a rank that uses the identity of the node that started it, a signal that arrives as 255 and reads like a broken
connection, a rank that outlives the process that its launcher knows.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import own_env
import psutil
import pytest

WORKLOADS = Path(__file__).parents[3] / "workloads"
# Process 1 of this machine belongs to no container.
WITHOUT_CONTAINER = "import sys, own_env; own_env.of_container = dict; sys.exit(own_env.main(sys.argv[1:]))"


def start(code):
    return subprocess.Popen(
        [sys.executable, "-c", WITHOUT_CONTAINER, sys.executable, "-c", code],
        cwd=WORKLOADS,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_environment_of_the_containers_first_process_is_read_whole(tmp_path):
    """An empty value, a value with an equals sign, and bytes that are not UTF-8."""
    environ = tmp_path / "environ"
    environ.write_bytes(b"DLSCALE_NODE=n2\0EMPTY=\0NCCL_SOCKET_IFNAME==eth0\0NAME=\xff\0")
    assert own_env.of_container(environ) == {
        "DLSCALE_NODE": "n2",
        "EMPTY": "",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NAME": os.fsdecode(b"\xff"),
    }


def test_a_lease_that_is_not_the_first_process_is_found():
    """Apptainer has its own first process, and all ranks of a node used the identity of the first node."""
    rank = "import own_env; print(own_env.of_container()['DLSCALE_NODE'])"
    launched = ["env", "DLSCALE_NODE=n1", sys.executable, "-c", rank]
    argv = ["env", "DLSCALE_NODE=n2", sys.executable, str(WORKLOADS / "lease.py"), "sh", "-c", '"$@"', "sh", *launched]
    with subprocess.Popen(argv, cwd=WORKLOADS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.read() == "n2\n"


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(own_env, "of_container", lambda: {"DLSCALE_NODE": "n2"})


def test_the_containers_variables_override_the_launchers(given, monkeypatch, capfd):
    monkeypatch.setenv("DLSCALE_NODE", "n1")
    monkeypatch.setenv("HOROVOD_RANK", "1")
    code = "import os; print(os.environ['DLSCALE_NODE'], os.environ['HOROVOD_RANK'])"
    assert own_env.main([sys.executable, "-c", code]) == 0
    assert capfd.readouterr().out == "n2 1\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137), ("import os; os.abort()", 134)],
)
def test_the_exit_code_is_the_programs_or_128_plus_its_signal(given, code, expected):
    assert own_env.main([sys.executable, "-c", code]) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_program(number):
    code = (
        "import signal, sys, time\n"
        "for n in (2, 15): signal.signal(n, lambda n, _: sys.exit(n))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    process = start(code)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(20) == number


def test_the_program_dies_with_it():
    process = start("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
