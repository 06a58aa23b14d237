"""Inside the image: the probe measures right exchanges and changes no loss, on two ranks and on one alone.

Prevents a probe that moves the random numbers, the gradients or the buffers of the job that it comes before; a sum that is none.
"""

from probed import OPERATIONS, hold, program, ran
from programs import torchrun

PROGRAM = (*program("pytorch"), "--devices=1")

hold(
    lambda *more: ran(*PROGRAM, "--strategy=ddp", *more, ranks=torchrun(2)),
    processes=2,
    operation="all_reduce",
    offered=OPERATIONS,
)
hold(lambda *more: ran(*PROGRAM, "--strategy=single", *more), processes=1, operation=None)
