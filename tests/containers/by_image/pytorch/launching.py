"""Inside the image: the launchers of two nodes exit cleanly, whichever is late at the final barrier.

Prevents: a node that looks for the store of a node that has left, which takes seconds and floods its log.
"""

import subprocess
import sys

from programs import LIMIT_S, torchrun

LAUNCHER = """
import sys, time
import torch
import torchrun
from torch.distributed.elastic.utils import store

come = store._barrier_nonblocking

def late(**barrier):
    key = come(**barrier)
    time.sleep(1)
    return key

if {late}:
    store._barrier_nonblocking = late
torchrun.main()
"""


def end(*, late):
    """Let two nodes run an empty job to completion, one of them late at the final barrier."""
    port = torchrun(1)[0]["MASTER_PORT"]
    meeting = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--local-addr=127.0.0.1")
    nodes = [
        subprocess.Popen(
            (
                *(sys.executable, "-c", LAUNCHER.format(late=number == late), *meeting, f"--node-rank={number}"),
                *("--no-python", "--nproc-per-node=1", "true"),
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for node in nodes:
        _, said = node.communicate(timeout=LIMIT_S)
        assert node.returncode == 0, said
        assert "Error" not in said, said


if __name__ == "__main__":
    for number in range(2):
        end(late=number)
