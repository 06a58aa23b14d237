"""Values of `--techniques`: optimizations of the same training on the same device. Without any, a program is a paper's plain one.

They are in the order of an ablation's rows. None changes the result, except by rounding (which elements dropout drops depends on the layout
of the map). Without `amp`, half precision casts the whole network: fp16 weights with fp32 copies, and no loss scaling; bf16, which
MXNet supports on CPUs only, always follows MXNet's operator lists.

MXNet 1.9.1 has no channels-last convolution on CPUs: oneDNN's fails with "could not create a descriptor", its own with "Only support NCW,
NCHW and NCDHW layout".
"""

import os

from arguments import refuse

TECHNIQUES = (
    "channels-last",  # maps and weights are channels-last, as tensor cores read them
    "amp",  # fp32 weights, products and convolutions in fp16 by MXNet's operator lists, scaled losses
    "aggregated-updates",  # one call updates up to 60 weights, in this process rather than in a key-value store
)
ON_GPUS = frozenset({"channels-last", "amp"})
# Weights per call of `multi_sgd_mom_update`: the limit of its kernel (src/operator/optimizer_op-inl.h), and MXNet's default.
MAX_AGGREGATED, DEFAULT_AGGREGATED = 60, 4


def check(args, *, offered):
    for name in args.techniques:
        if name not in offered:
            known = f"it has {', '.join(word for word in TECHNIQUES if word in offered)}" if offered else "leave it out"
            refuse(f"--techniques={name} is not offered by this program; {known}")
        if name in ON_GPUS and args.device != "gpu":
            refuse(f"--techniques={name} is for GPUs; leave it out with --device={args.device}")
    if "amp" in args.techniques and args.precision != "fp16":
        refuse(f"--techniques=amp computes in fp16, not in {args.precision}; ask for fp16")
    for name in ("amp", "aggregated-updates"):
        if name in args.techniques and args.kvstore == "dist_async":
            refuse(
                f"--techniques={name} updates weights in the workers, and --kvstore=dist_async in its servers; leave it out"
            )


def by_lists(args):
    """Data type of MXNet's mixed precision by operator lists; None if unused."""
    return {"bf16": "bfloat16", "fp16": "float16" if "amp" in args.techniques else None}.get(args.precision)


def set_up(args):
    """Set MXNet's environment; call before its import."""
    if "aggregated-updates" in args.techniques:
        os.environ["MXNET_OPTIMIZER_AGGREGATION_SIZE"] = str(MAX_AGGREGATED)


def channels_last(net, mx, first):
    """Convert an initialized network to channels-last: the same weights, in another order. Returns `first`, which converts images, followed by it."""
    nn = mx.gluon.nn

    def convert(layer):
        if isinstance(layer, nn.Conv2D):
            layer._kwargs["layout"] = "NHWC"  # noqa: SLF001 - Gluon's zoo builds its networks in one layout alone
            weight, contexts = layer.weight, layer.weight.list_ctx()
            value = weight.data(contexts[0]).transpose((0, 2, 3, 1))
            weight._shape, weight._var = value.shape, None  # noqa: SLF001 - its symbol caches the shape
            weight.initialize(mx.init.Constant(value), contexts, force_reinit=True)
        elif isinstance(layer, nn.MaxPool2D | nn.AvgPool2D | nn.GlobalAvgPool2D):
            layer._kwargs["layout"] = "NHWC"  # noqa: SLF001
        elif isinstance(layer, nn.BatchNorm):
            layer._kwargs["axis"] = 3  # noqa: SLF001
        elif isinstance(layer, mx.gluon.contrib.nn.HybridConcurrent):
            layer.axis = 3
        elif hasattr(layer, "channels_last"):
            layer.channels_last = True

    converted = nn.HybridSequential()
    converted.add(first, net.apply(convert))
    return converted


def counted(optimizer):
    """Have an optimizer record how many weights each of its calls updates; returns the list that receives them."""
    update_sizes, update = [], optimizer.update_multi_precision

    def recording_update(index, *parts: object):
        update_sizes.append(len(index) if isinstance(index, list | tuple) else 1)
        return update(index, *parts)

    optimizer.update_multi_precision = recording_update
    return update_sizes


def effects(args, nodes, updates):
    """Effect of each technique, {name: count}, 0 if it has none: operators among the graph's `nodes`, or updated weights."""
    found = {}
    if "channels-last" in args.techniques:
        found["channels-last"] = sum(node.get("attrs", {}).get("layout") == "NHWC" for node in nodes)
    if by_lists(args):
        cast = {number for number, node in enumerate(nodes) if node["op"] == "amp_cast"}
        products = [node for node in nodes if node["op"] in {"Convolution", "FullyConnected"}]
        found["amp"] = sum(node["inputs"][0][0] in cast for node in products)
    if "aggregated-updates" in args.techniques:
        found["aggregated-updates"] = sum(count for count in updates if count > DEFAULT_AGGREGATED)
    return found
