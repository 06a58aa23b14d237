"""Values of `--techniques`: optimizations of the same network on the same device. Without any, a program is a paper's plain one.

They are in the order of an ablation's rows. None changes the result, except by rounding; bf16-gradients rounds what it sends.
"""

import os
from pathlib import Path

from arguments import IN_BF16, refuse

TECHNIQUES = (
    "channels-last",  # images and weights are channels-last, as tensor cores read them
    "fused-optimizer",  # the update of all weights is one kernel
    "space-to-depth",  # the first convolution runs over blocks of pixels (`stems.py`)
    "pooling-kernel",  # 3x3 max pooling with stride 2 by the suite's own kernels (`pooling.py`)
    "folded-norm",  # inference: each batch normalization is folded into the convolution before it (`folded`)
    "cudnn-attention",  # attention by cuDNN's kernel in place of FlashAttention 2
    "loss-kernel",  # an output layer's cross-entropy and its gradient by the suite's own kernel (`loss_kernel.py`)
    "compile",  # TorchInductor compiles the network and fuses everything between products and convolutions
    "kernel-search",  # TorchInductor autotunes each of its kernels
    "cuda-graphs",  # a whole step is captured once and launched as one (`captured.py`)
    "local-statistics",  # each rank keeps running statistics of its own samples; a checkpoint has rank 0's in either case
    "one-message",  # all gradients are sent together after the backward pass, packed by a few kernels
    "bf16-gradients",  # gradients are sent between ranks in bf16
)
# Techniques of a program that does not define its own set.
OF_IMAGES = tuple(name for name in TECHNIQUES if name not in ("cudnn-attention", "loss-kernel", "folded-norm"))
OF_INFERENCE = ("folded-norm", "compile", "kernel-search", "cuda-graphs")
ON_GPUS = frozenset(
    {"space-to-depth", "pooling-kernel", "cudnn-attention", "loss-kernel", "compile", "kernel-search", "cuda-graphs"}
)
BETWEEN_RANKS = frozenset({"local-statistics", "one-message", "bf16-gradients"})
SEARCH = ("max_autotune_pointwise", "coordinate_descent_tuning")  # of torch._inductor.config
# Steps before the captured one: in these, libraries choose their algorithms, TorchInductor compiles, and
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
        refuse("--techniques=kernel-search tunes the kernels of a compiled network; add compile")


def check(args, strategy, *, offered):
    """Refuse techniques that a program or a strategy, a class of `ranks.py`, does not support."""
    check_offered(args, offered)
    for name in args.techniques:
        if name in strategy.fails_with:
            refuse(f"--techniques={name} does not work with --strategy={args.strategy}; leave it out")
        if name in BETWEEN_RANKS and not strategy.tunes_exchange:
            refuse(f"--techniques={name} is for --strategy=ddp; leave it out with --strategy={args.strategy}")
    if "pooling-kernel" in args.techniques and "channels-last" not in args.techniques:
        refuse("--techniques=pooling-kernel reads images channels-last; add channels-last")
    if "cudnn-attention" in args.techniques and args.precision not in IN_BF16:
        refuse(f"--techniques=cudnn-attention has no kernel for --precision={args.precision}; ask for bf16")
    if "cuda-graphs" in args.techniques:
        check_graphs(args)


def check_graphs(args):
    """Refuse what a graph cannot capture, and a warm-up that ends before the captured step."""
    if args.precision == "fp16":
        refuse("--techniques=cuda-graphs can't capture fp16's dynamic loss scaling; ask for bf16")
    if args.profile_region or args.profile in {"memory", "region"}:
        refuse("--techniques=cuda-graphs launches a step as a whole, without regions; leave it out of this pass")
    if args.warmup <= EAGER_STEPS:
        refuse(f"--techniques=cuda-graphs captures step {EAGER_STEPS + 1}; ask for --warmup={EAGER_STEPS + 1} or more")


def rebuilt(net, names):
    """The network with the layers that techniques replace; parameters and their names stay."""
    from torch import nn

    for module in list(net.modules()):
        for name, layer in list(module.named_children()):
            if "space-to-depth" in names and isinstance(layer, nn.Conv2d) and is_stem(layer):
                from with_pytorch.stems import Blocked

                setattr(module, name, Blocked(layer))
            if "pooling-kernel" in names and isinstance(layer, nn.MaxPool2d) and is_halving_pool(layer):
                from with_pytorch.pooling import MaxPool

                setattr(module, name, MaxPool(padding=layer.padding, ceil_mode=layer.ceil_mode))
    return net


def folded(torch, net):
    """A network in evaluation mode with its batch normalizations folded into the convolutions before them, by PyTorch's own pass.

    Returns it with the technique's effect: {"folded-norm": how many were folded}, empty if the network has none.
    """
    from torch.fx.experimental.optimization import fuse

    def norms(network):
        return sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in network.modules())

    if not norms(net):
        return net, {}
    fused = fuse(net)
    return fused, {"folded-norm": norms(net) - norms(fused)}


def is_stem(layer):
    """Whether a convolution reads RGB, with a stride and a square kernel."""
    return layer.in_channels == 3 and layer.stride[0] == layer.stride[1] > 1 and len(set(layer.kernel_size)) == 1


def is_halving_pool(layer):
    """Whether a pooling layer is 3x3 with stride 2."""
    return layer.kernel_size == 3 and layer.stride == 2 and layer.dilation == 1


def use_cache(directory):
    """Have TorchInductor and Triton cache their work in a directory; ignore None and a directory that is not writable."""
    if directory and os.access(directory, os.W_OK | os.X_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(directory, "inductor"))
        os.environ["TRITON_CACHE_DIR"] = str(Path(directory, "triton"))


def search_options():
    """TorchInductor options that autotune each kernel, which more than doubles the compile time.

    The search starts from the fastest of several shapes and doubles or halves one size after the other as long
    as that helps.
    """
    return dict.fromkeys(SEARCH, True)


def graph_counts():
    """Graphs compiled and reused, by TorchInductor's own counters; a graph that its cache can't hold is compiled every time."""
    from torch._dynamo.utils import counters

    counts = counters["inductor"]
    return {
        "fresh": counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"],
        "kept": counts["fxgraph_cache_hit"],
    }
