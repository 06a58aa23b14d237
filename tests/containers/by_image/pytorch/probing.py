"""Inside the image: the probe measures right sums and changes no loss, on two ranks and on one alone.

Prevents a probe that moves the random numbers, the gradients or the buffers of the job that it comes before; a sum that is none.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from probed import hold, program, ran

PYTHON, *PROGRAM = program("pytorch")
TORCHRUN = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")

hold(
    lambda *more: ran(*TORCHRUN, *PROGRAM, "--devices=1", "--strategy=ddp", *more), processes=2, operation="all_reduce"
)
hold(lambda *more: ran(PYTHON, *PROGRAM, "--devices=1", "--strategy=single", *more), processes=1, operation=None)
