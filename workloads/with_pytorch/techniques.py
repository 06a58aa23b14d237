"""What `--techniques` names: ways to train the same network faster on the same device. Without any, a program is the plain one of a paper.

The order is that of the lines of an ablation. None changes what is computed, but for rounding; bf16-gradients rounds what it sends.
"""

import os
from pathlib import Path

from arguments import refuse

TECHNIQUES = (
    "channels-last",  # images and weights lie channels-last, as tensor cores read them
    "fused-optimizer",  # the update of all weights is one kernel
    "space-to-depth",  # the first convolution goes over blocks of pixels (`stems.py`)
    "pooling-kernel",  # 3x3 max pooling with stride 2 by kernels of the suite's own (`pooling.py`)
    "compile",  # the network is compiled by TorchInductor, which fuses what cuDNN leaves between convolutions
    "kernel-search",  # TorchInductor times many shapes of each of its kernels and takes the fastest
    "cuda-graphs",  # a whole step is recorded once and launched as one (`captured.py`)
    "local-statistics",  # each rank keeps the running statistics of its own samples; those that are saved are rank 0's anyway
    "one-message",  # gradients travel all together after the backward pass, packed by a few kernels
    "bf16-gradients",  # gradients travel between ranks in bf16
)
ON_GPUS = frozenset({"space-to-depth", "pooling-kernel", "compile", "kernel-search", "cuda-graphs"})
BETWEEN_RANKS = frozenset({"local-statistics", "one-message", "bf16-gradients"})
SEARCH = ("max_autotune_pointwise", "coordinate_descent_tuning")  # of torch._inductor.config
# Steps before the one that is recorded: libraries choose their algorithms in them, TorchInductor compiles, and
# DistributedDataParallel times itself (PyTorch's notes on CUDA graphs).
EAGER_STEPS = 11


def check(args, *, offered):
    for name in args.techniques:
        if name not in offered:
            known = ", ".join(word for word in TECHNIQUES if word in offered)
            refuse(f"--techniques={name} is not offered by this program; it has {known}")
        if name in ON_GPUS and args.device != "gpu":
            refuse(f"--techniques={name} is for GPUs; leave it out with --device={args.device}")
        if name in BETWEEN_RANKS and args.strategy != "ddp":
            refuse(
                f"--techniques={name} joins the ranks that torchrun starts; leave it out with --strategy={args.strategy}"
            )
    if "pooling-kernel" in args.techniques and "channels-last" not in args.techniques:
        refuse("--techniques=pooling-kernel reads images channels-last; add channels-last")
    if args.strategy == "dp" and {"compile", "cuda-graphs"} & set(args.techniques):
        refuse(
            "--techniques=compile and cuda-graphs hold one network, of which --strategy=dp makes new copies; leave them out"
        )
    if "kernel-search" in args.techniques and "compile" not in args.techniques:
        refuse("--techniques=kernel-search is among the kernels that a compiler makes; add compile")
    if "cuda-graphs" in args.techniques:
        check_graphs(args)


def check_graphs(args):
    """Refuse what no graph can hold, and a warm-up that ends before there is one."""
    if args.strategy == "horovod":
        refuse("--techniques=cuda-graphs can't record what --strategy=horovod sends; leave it out, or ask for ddp")
    if args.precision == "fp16":
        refuse("--techniques=cuda-graphs can't record the decisions of fp16's loss scaling; ask for bf16")
    if args.profile_region or args.profile in {"memory", "region"}:
        refuse("--techniques=cuda-graphs makes a step one launch that no region divides; leave it out of such a pass")
    if args.warmup <= EAGER_STEPS:
        refuse(f"--techniques=cuda-graphs records step {EAGER_STEPS + 1}; ask for --warmup={EAGER_STEPS + 1} or more")


def rebuilt(net, names):
    """The network with the layers that techniques have layers of their own for; parameters and their names stay."""
    from torch import nn

    for module in list(net.modules()):
        for name, layer in list(module.named_children()):
            if "space-to-depth" in names and isinstance(layer, nn.Conv2d) and is_stem(layer):
                from with_pytorch.stems import Blocked

                setattr(module, name, Blocked(layer))
            if "pooling-kernel" in names and isinstance(layer, nn.MaxPool2d) and halves(layer):
                from with_pytorch.pooling import MaxPool

                setattr(module, name, MaxPool(padding=layer.padding, ceil_mode=layer.ceil_mode))
    return net


def is_stem(layer):
    """Whether a convolution reads colours, with a stride and a square kernel."""
    return layer.in_channels == 3 and layer.stride[0] == layer.stride[1] > 1 and len(set(layer.kernel_size)) == 1


def halves(layer):
    """Whether a pooling goes over 3x3 pixels with stride 2."""
    return layer.kernel_size == 3 and layer.stride == 2 and layer.dilation == 1


def keep(directory):
    """Have both compilers keep their work in a directory; one that can't be written to is left alone, and so is None."""
    if directory and os.access(directory, os.W_OK | os.X_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(directory, "inductor"))
        os.environ["TRITON_CACHE_DIR"] = str(Path(directory, "triton"))


def compiled(net, *, search):
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
