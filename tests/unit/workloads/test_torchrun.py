"""Prevents: an option that is not passed to torchrun, a rank's failure that exits with 0, lost last output; a start or a shutdown of PyTorch
that ranks wait for although torchrun does not need it, a deferred part of PyTorch that is missing on use."""

import os
import subprocess
import sys
from pathlib import Path

import events
import pytest

PROGRAM = Path(events.__file__).parent / "torchrun.py"
TORCH = {
    "torch/__init__.py": "from torch import _meta_registrations\n",
    "torch/_meta_registrations.py": "print('computing')\nNAME = 'found'\n",
    "torch/distributed/__init__.py": "TCPStore = None\n",
}
LAUNCHER = """
import argparse, atexit, gc, sys
import torch

class TakenApart:
    def __del__(self):
        print("taken apart")

kept = TakenApart()

def parse_args(_):
    return argparse.Namespace(nnodes="1", node_rank=0, master_addr="127.0.0.1", master_port=None)

def main():
    atexit.register(print, "registered")
    print(*sys.argv[1:], gc.isenabled())
    {last}
"""


@pytest.fixture
def torchrun(tmp_path):
    """Run it with a PyTorch whose launcher prints its arguments, then runs `last`."""

    def run(last, *argv):
        for name, text in {**TORCH, "torch/distributed/run.py": LAUNCHER.format(last=last)}.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, str(PROGRAM), *argv], env=environment, capture_output=True, text=True, timeout=60
        )

    return run


def test_it_runs_torchrun_without_compute_modules_and_without_shutdown(torchrun):
    done = torchrun("", "--nproc-per-node=2", "program.py", "--batch=4")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["--nproc-per-node=2 program.py --batch=4 True", "registered"]


def test_deferred_modules_are_loaded_on_use(torchrun):
    done = torchrun("print(torch._meta_registrations.NAME)")
    assert done.stdout.splitlines() == ["True", "computing", "found", "registered"]


@pytest.mark.parametrize(("last", "code"), [("sys.exit(3)", 3), ("raise ValueError('a rank failed')", 1)])
def test_a_failure_keeps_its_exit_code_and_its_message(torchrun, last, code):
    done = torchrun(last)
    assert done.returncode == code
    assert ("ValueError: a rank failed" in done.stderr) == (code == 1)
