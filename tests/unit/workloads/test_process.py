"""Prevents: two CPU workers on one core while another is idle, a rank with its neighbour's number, a program that exits immediately and loses
what it had written or registered: the last event, a library's own log, a loader's processes."""

import os
import subprocess
import sys
from pathlib import Path

import process
import pytest

WORKLOADS = Path(process.__file__).parent
CORES = sorted(os.sched_getaffinity(0))


def pinned(cpus, **environment):
    """Cores of a separate process after `pin(cpus)`."""
    code = f"import os, process; process.pin({cpus}); print(*sorted(os.sched_getaffinity(0)))"
    command = [sys.executable, "-c", code]
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(WORKLOADS)}
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, check=True)
    return [int(core) for core in done.stdout.split()]


@pytest.mark.parametrize("name", process.LOCAL_RANKS)
def test_neighbours_get_disjoint_cores(name):
    if len(CORES) < 2:
        pytest.skip("this machine offers one core")
    assert pinned(1, **{name: "0"}) == CORES[:1]
    assert pinned(1, **{name: "1"}) == CORES[1:2]


def test_zero_cores_leave_a_process_unbound():
    assert pinned(0, LOCAL_RANK="1") == CORES


def test_more_ranks_than_cores_share_round_robin():
    assert pinned(1, LOCAL_RANK=str(len(CORES))) == CORES[:1]


def test_a_process_without_a_launcher_has_local_rank_0():
    assert pinned(1) == CORES[:1]


PROGRAM = """
import atexit, ctypes, sys
from process import leave

class Loud:
    def __del__(self):
        print("taken apart")

kept = Loud()
atexit.register(lambda: print("promised"))
print("python")
ctypes.CDLL(None).puts(b"c")
print("error", file=sys.stderr, end="")
leave()
print("came back")
"""


def test_leaving_flushes_output_and_runs_exit_handlers_but_no_shutdown():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=WORKLOADS, capture_output=True, text=True, check=True)
    assert (sorted(ended.stdout.split()), ended.stderr) == (["c", "promised", "python"], "error")
