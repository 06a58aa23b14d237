"""Where a rank runs: its number on this host, and the cores that it has for itself. Syntax of Python 3.6 only; before any import.

Thread pools take their size and place from the affinity at import, so that `pin` comes first.
"""

import os
import platform

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


def environment(args, **told: object):
    """The fields of event `env`: what is the same for all frameworks, and what one tells of itself and its devices."""
    absent = dict.fromkeys(("cuda", "cudnn", "nccl"))
    here = {"device": args.device, "threads": args.threads, "cpus": sorted(os.sched_getaffinity(0))}
    return {"python": platform.python_version(), **here, **absent, **told}
