"""The end of a program, at once. Standard library and syntax of Python 3.6 only.

What an interpreter takes apart before it ends (modules, their objects, libraries' globals) takes PyTorch and TensorFlow up to a second on
a core, for which whoever waits for the process waits too; the kernel takes all of it back in a hundredth of that.
"""

import atexit
import ctypes
import os
import sys


def leave():
    """End this process with exit code 0, when what is registered for its end has been called and what was written is out; never returns."""
    atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter calls first when it ends; it has no public name
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what libraries wrote by C's own streams, as NCCL does
    os._exit(0)
