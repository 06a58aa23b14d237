"""A rank as a process: its local rank, its own cores, its exit. Syntax of Python 3.6 only; used before any other import.

Thread pools take their size and placement from the affinity at import, so call `pin` first.
"""

import atexit
import contextlib
import ctypes
import os
import platform
import sys

# Set by torchrun and `tf_workers.py`, Horovod's Gloo launcher, and Open MPI.
LOCAL_RANKS = ("LOCAL_RANK", "HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")


def local_rank():
    """Local rank: number of this process among those in its container, from 0."""
    return next((int(os.environ[name]) for name in LOCAL_RANKS if name in os.environ), 0)


def pin(cpus):
    """Bind this process to `cpus` cores of its container, disjoint from those of its neighbours; 0 leaves it unbound.

    If there are fewer cores than the ranks want (oversubscription), they are assigned round robin.
    """
    if cpus:
        cores = sorted(os.sched_getaffinity(0))
        first = local_rank() * cpus
        os.sched_setaffinity(0, {cores[(first + core) % len(cores)] for core in range(cpus)})


class Alone:
    """A process that joins no others: rank 0 of a world of one. Base of the classes that join ranks.

    Events, loop and probe assume that every iteration exchanges gradients once, `gradient_bytes` (`loop.py`) per device. For a strategy
    with other traffic, or none in some iterations, that is the size of an all-reduce with as much traffic as an iteration has on average.
    """

    rank = 0
    no_collectives = None

    def barrier(self):
        """Wait for all ranks."""

    def slowest(self, seconds):
        """Return the maximum over all ranks, None if they cannot exchange it."""
        return seconds

    def exchange(self, elements, *places: object):
        """Return what `probe.py` times as an exchange of gradients, None if there is no other device."""

    @contextlib.contextmanager
    def collectives(self, *places: object):
        """Yield what `collectives.py` times: nothing, unless a subclass provides its library's operations."""
        del places
        yield {}, self.no_collectives

    def leave(self):
        """Shut communication down."""


def environment(args, **own_fields: object):
    """The fields of event `env`: those common to all frameworks, and `own_fields` of a framework and its devices."""
    absent = dict.fromkeys(("cuda", "cudnn", "nccl"))
    common = {"device": args.device, "threads": args.threads, "cpus": sorted(os.sched_getaffinity(0))}
    return {"python": platform.python_version(), **common, **absent, **own_fields}


def leave():
    """Exit with code 0 after running the exit handlers and flushing all output; never returns.

    Interpreter shutdown takes PyTorch and TensorFlow up to a second on a core, which delays whoever waits for the process;
    the kernel reclaims everything in a hundredth of that.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own first step at exit; it has no public name
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # output of libraries by C streams, such as NCCL's
    os._exit(0)
