"""Inside the image: the probe measures correct sums and changes no loss, on two workers and on two devices of one.

Prevents a probe that changes the variables of its job, a wrong sum, a buffer that is on no
device.
"""

from probed import check, program, run_for_events
from tf_workers import environment

CLUSTER = ["127.0.0.1:20001", "127.0.0.1:20002"]
WORKERS = [environment(CLUSTER, rank, rank) for rank in (0, 1)]
PROGRAM = program("tensorflow", "lenet")  # the others take a minute to trace

check(
    lambda *more: run_for_events(*PROGRAM, "--devices=1", "--strategy=multiworker", *more, ranks=WORKERS),
    processes=2,
    operation="all_reduce",
)
check(
    lambda *more: run_for_events(*PROGRAM, "--devices=2", "--strategy=mirrored", *more),
    processes=1,
    operation="all_reduce",
)
