"""Inside the image: the probe measures right sums and changes no loss, on two workers and on two devices of one.

Prevents a probe that moves the variables of the job that it comes before, a sum that is none, a buffer that is on no
device.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from probed import WORKLOADS, hold, program, ran

CLUSTER = "--cluster=127.0.0.1:20001,127.0.0.1:20002"
WORKERS = (sys.executable, str(WORKLOADS / "tf_workers.py"), CLUSTER, "--first=0", "--count=2")
PROGRAM = program("tensorflow", "lenet")  # its dropout draws by rank and iteration; the others take a minute to trace

hold(
    lambda *more: ran(*WORKERS, *PROGRAM, "--devices=1", "--strategy=multiworker", *more),
    processes=2,
    operation="all_reduce",
)
hold(lambda *more: ran(*PROGRAM, "--devices=2", "--strategy=mirrored", *more), processes=1, operation="all_reduce")
