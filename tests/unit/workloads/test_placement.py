"""Prevents: two CPU workers on one core while another is idle, a rank that takes its neighbour's number."""

import os
import subprocess
import sys
from pathlib import Path

import placement
import pytest

WORKLOADS = Path(placement.__file__).parent
CORES = sorted(os.sched_getaffinity(0))


def pinned(cpus, **environment):
    """The cores of a process of its own after `pin(cpus)`."""
    code = f"import os, placement; placement.pin({cpus}); print(*sorted(os.sched_getaffinity(0)))"
    command = [sys.executable, "-c", code]
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(WORKLOADS)}
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, check=True)
    return [int(core) for core in done.stdout.split()]


@pytest.mark.parametrize("name", placement.LOCAL_RANKS)
def test_neighbours_get_cores_of_their_own(name):
    if len(CORES) < 2:
        pytest.skip("this machine offers one core")
    assert pinned(1, **{name: "0"}) == CORES[:1]
    assert pinned(1, **{name: "1"}) == CORES[1:2]


def test_zero_leaves_a_process_where_it_is():
    assert pinned(0, LOCAL_RANK="1") == CORES


def test_more_ranks_than_cores_go_round():
    assert pinned(1, LOCAL_RANK=str(len(CORES))) == CORES[:1]


def test_a_process_without_a_launcher_is_the_first():
    assert pinned(1) == CORES[:1]
