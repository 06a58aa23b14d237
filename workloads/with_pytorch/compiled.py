"""What TorchInductor and Triton make of a network, kept in a directory for the next run of the same program.

keep(directory)     from here on, both compilers look there first
of(net, search=)    a network that computes what `net` does, compiled when it is first called
graphs()            how many graphs were compiled, and how many were found
"""

import os
from pathlib import Path

SEARCH = ("max_autotune_pointwise", "coordinate_descent_tuning")  # of torch._inductor.config


def keep(directory):
    """Have both compilers keep their work in a directory; one that can't be written to is left alone, and so is None."""
    if directory and os.access(directory, os.W_OK | os.X_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(directory, "inductor"))
        os.environ["TRITON_CACHE_DIR"] = str(Path(directory, "triton"))


def of(net, *, search):
    """Compile a network; `search` has each kernel timed in many shapes, which takes over twice as long.

    Of several shapes the fastest is where the search begins, and from there on it doubles or halves one size after the other for as long
    as that helps.
    """
    import torch

    return torch.compile(net, options=dict.fromkeys(SEARCH, True) if search else None)


def graphs():
    """TorchInductor's own counters; a graph that its cache can't hold is made anew every time."""
    from torch._dynamo.utils import counters

    told = counters["inductor"]
    return {
        "fresh": told["fxgraph_cache_miss"] + told["fxgraph_cache_bypass"],
        "kept": told["fxgraph_cache_hit"],
    }
