"""A rank as a process: its number on this host, the cores that it has for itself, its end. Syntax of Python 3.6 only; before any import.

Thread pools take their size and place from the affinity at import, so that `pin` comes first.
"""

import atexit
import contextlib
import ctypes
import os
import platform
import sys

# What torchrun and `tf_workers.py`, Horovod's Gloo launcher, and Open MPI tell a process.
LOCAL_RANKS = ("LOCAL_RANK", "HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")


def local_rank():
    """Number of this process among those that share its container, from 0."""
    return next((int(os.environ[name]) for name in LOCAL_RANKS if name in os.environ), 0)


def pin(cpus):
    """Bind this process to `cpus` cores of its container's, disjoint from those of its neighbours; 0 leaves it unbound.

    Where there are fewer cores than the ranks want (oversubscription), they are handed out round and round.
    """
    if cpus:
        offered = sorted(os.sched_getaffinity(0))
        first = local_rank() * cpus
        os.sched_setaffinity(0, {offered[(first + core) % len(offered)] for core in range(cpus)})


class Alone:
    """What a process is among the ranks of a job, unless it joins others: the first, with nobody to wait for."""

    rank = 0
    no_collectives = None

    def barrier(self):
        """There is nobody to wait for."""

    def slowest(self, seconds):
        return seconds

    def exchange(self, elements, *places: object):
        """There is nobody to exchange anything with."""

    @contextlib.contextmanager
    def collectives(self, *places: object):
        """What `collectives.py` times: nothing, unless those that join others say what their library has."""
        del places
        yield {}, self.no_collectives

    def leave(self):
        """There is nobody to take leave of."""


def environment(args, **told: object):
    """The fields of event `env`: what is the same for all frameworks, and what one tells of itself and its devices."""
    absent = dict.fromkeys(("cuda", "cudnn", "nccl"))
    here = {"device": args.device, "threads": args.threads, "cpus": sorted(os.sched_getaffinity(0))}
    return {"python": platform.python_version(), **here, **absent, **told}


def leave():
    """End this process with exit code 0, when what is registered for its end has been called and what was written is out; never returns.

    What an interpreter takes apart before it ends takes PyTorch and TensorFlow up to a second on a core, for which whoever waits for the
    process waits too; the kernel takes all of it back in a hundredth of that.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter calls first when it ends; it has no public name
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what libraries wrote by C's own streams, as NCCL does
    os._exit(0)
