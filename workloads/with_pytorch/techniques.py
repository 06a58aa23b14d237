"""What `--techniques` names: ways for the same network to be faster on the same device. Without any, a program is the plain one of a paper.

The order is that of the lines of an ablation. None changes what is computed, but for rounding; bf16-gradients rounds what it sends.
"""

import os
from pathlib import Path

from arguments import IN_BF16, refuse

TECHNIQUES = (
    "channels-last",  # images and weights lie channels-last, as tensor cores read them
    "fused-optimizer",  # the update of all weights is one kernel
    "space-to-depth",  # the first convolution goes over blocks of pixels (`stems.py`)
    "pooling-kernel",  # 3x3 max pooling with stride 2 by kernels of the suite's own (`pooling.py`)
    "folded-norm",  # inference: each batch normalization is folded into the convolution before it (`folded`)
    "cudnn-attention",  # attention by cuDNN's kernel in place of FlashAttention 2
    "compile",  # the network is compiled by TorchInductor, which fuses what lies between products and convolutions
    "kernel-search",  # TorchInductor times many shapes of each of its kernels and takes the fastest
    "cuda-graphs",  # a whole step is recorded once and launched as one (`captured.py`)
    "local-statistics",  # each rank keeps the running statistics of its own samples; those that are saved are rank 0's anyway
    "one-message",  # gradients travel all together after the backward pass, packed by a few kernels
    "bf16-gradients",  # gradients travel between ranks in bf16
)
# What a program offers that names nothing else.
OF_IMAGES = tuple(name for name in TECHNIQUES if name not in ("cudnn-attention", "folded-norm"))
OF_INFERENCE = ("folded-norm", "compile", "kernel-search", "cuda-graphs")
ON_GPUS = frozenset({"space-to-depth", "pooling-kernel", "cudnn-attention", "compile", "kernel-search", "cuda-graphs"})
BETWEEN_RANKS = frozenset({"local-statistics", "one-message", "bf16-gradients"})
# DataParallel copies the network anew in each step; compiling fails behind layers that ranks share (PyTorch 2.13: a gradient that is no DTensor).
NOT_WITH = {"dp": {"compile", "cuda-graphs"}, "tp": {"compile"}, "fsdp+tp": {"compile"}}
SEARCH = ("max_autotune_pointwise", "coordinate_descent_tuning")  # of torch._inductor.config
# Steps before the one that is recorded: libraries choose their algorithms in them, TorchInductor compiles, and
# DistributedDataParallel times itself (PyTorch's notes on CUDA graphs).
EAGER_STEPS = 11


def check_offered(args, offered):
    for name in args.techniques:
        if name not in offered:
            known = ", ".join(word for word in TECHNIQUES if word in offered)
            refuse(f"--techniques={name} is not offered by this program; it has {known}")
        if name in ON_GPUS and args.device != "gpu":
            refuse(f"--techniques={name} is for GPUs; leave it out with --device={args.device}")
    if "kernel-search" in args.techniques and "compile" not in args.techniques:
        refuse("--techniques=kernel-search is among the kernels that a compiler makes; add compile")


def check(args, *, offered):
    check_offered(args, offered)
    for name in args.techniques:
        if name in NOT_WITH.get(args.strategy, ()):
            refuse(f"--techniques={name} does not work with --strategy={args.strategy}; leave it out")
        if name in BETWEEN_RANKS and args.strategy != "ddp":
            refuse(
                f"--techniques={name} joins the ranks that torchrun starts; leave it out with --strategy={args.strategy}"
            )
    if "pooling-kernel" in args.techniques and "channels-last" not in args.techniques:
        refuse("--techniques=pooling-kernel reads images channels-last; add channels-last")
    if "cudnn-attention" in args.techniques and args.precision not in IN_BF16:
        refuse(f"--techniques=cudnn-attention has no kernel for --precision={args.precision}; ask for bf16")
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


def folded(torch, net):
    """A network in evaluation mode whose convolutions hold the batch normalizations behind them, by PyTorch's own pass.

    And what that changed: how many there were and are not any more, nothing of a network that has none.
    """
    from torch.fx.experimental.optimization import fuse

    def norms(one):
        return sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in one.modules())

    if not norms(net):
        return net, {}
    made = fuse(net)
    return made, {"folded-norm": norms(net) - norms(made)}


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


def search():
    """What has the compiler time each kernel in many shapes, which takes over twice as long.

    Of several shapes the fastest is where the search begins, and from there on it doubles or halves one size after the other for as long
    as that helps.
    """
    return dict.fromkeys(SEARCH, True)


def graphs():
    """TorchInductor's own counters; a graph that its cache can't hold is made anew every time."""
    from torch._dynamo.utils import counters

    told = counters["inductor"]
    return {
        "fresh": told["fxgraph_cache_miss"] + told["fxgraph_cache_bypass"],
        "kept": told["fxgraph_cache_hit"],
    }
