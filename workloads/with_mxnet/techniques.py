"""What `--techniques` names: ways to train the same network faster on the same device. Without any, a program is the plain one of a paper.

The order is that of the lines of an ablation. None changes what is computed, but for rounding (what dropout drops on a map follows from how it
lies). Half precision is otherwise a network that is cast, whose weights are in fp16 beside copies in fp32 and whose losses nobody scales; bf16, which
MXNet knows on CPUs alone, is always by its own lists of operators.

MXNet 1.9.1 has no convolution over maps channels-last on CPUs: oneDNN's says "could not create a descriptor", its own "Only support NCW,
NCHW and NCDHW layout".
"""

import os

from arguments import refuse

TECHNIQUES = (
    "channels-last",  # maps and weights lie channels-last, as tensor cores read them
    "amp",  # weights in fp32, products and convolutions in fp16 by MXNet's lists, losses scaled
    "aggregated-updates",  # one call updates up to 60 weights, in this process and not in a key-value store
)
ON_GPUS = frozenset({"channels-last", "amp"})
# Of a call of `multi_sgd_mom_update`, whose kernel has room for so many (src/operator/optimizer_op-inl.h), and MXNet's default.
MOST, USUAL = 60, 4


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
    """The type of MXNet's mixed precision; None where it is not used."""
    return {"bf16": "bfloat16", "fp16": "float16" if "amp" in args.techniques else None}.get(args.precision)


def set_up(args):
    """Tell MXNet, before it is imported."""
    if "aggregated-updates" in args.techniques:
        os.environ["MXNET_OPTIMIZER_AGGREGATION_SIZE"] = str(MOST)


def channels_last(net, mx, first):
    """Turn a network whose weights are drawn to maps that lie channels-last: the same weights, in another order. Gives it behind `first`, which turns images."""
    nn = mx.gluon.nn

    def turn(one):
        if isinstance(one, nn.Conv2D):
            one._kwargs["layout"] = "NHWC"  # noqa: SLF001 - Gluon's zoo builds its networks in one layout alone
            weight, contexts = one.weight, one.weight.list_ctx()
            value = weight.data(contexts[0]).transpose((0, 2, 3, 1))
            weight._shape, weight._var = value.shape, None  # noqa: SLF001 - its symbol knows the shape, too
            weight.initialize(mx.init.Constant(value), contexts, force_reinit=True)
        elif isinstance(one, nn.MaxPool2D | nn.AvgPool2D | nn.GlobalAvgPool2D):
            one._kwargs["layout"] = "NHWC"  # noqa: SLF001
        elif isinstance(one, nn.BatchNorm):
            one._kwargs["axis"] = 3  # noqa: SLF001
        elif isinstance(one, mx.gluon.contrib.nn.HybridConcurrent):
            one.axis = 3
        elif hasattr(one, "channels_last"):
            one.channels_last = True

    turned = nn.HybridSequential()
    turned.add(first, net.apply(turn))
    return turned


def counted(optimizer):
    """Have an optimizer note how many weights each of its calls updates; gives the list that it notes them in."""
    noted, update = [], optimizer.update_multi_precision

    def noting(index, *parts: object):
        noted.append(len(index) if isinstance(index, list | tuple) else 1)
        return update(index, *parts)

    optimizer.update_multi_precision = noting
    return noted


def effects(args, nodes, updates):
    """What each technique has changed, {name: count}, 0 where one has no effect: operators of the graph whose `nodes` these are, and updated weights."""
    found = {}
    if "channels-last" in args.techniques:
        found["channels-last"] = sum(node.get("attrs", {}).get("layout") == "NHWC" for node in nodes)
    if by_lists(args):
        cast = {number for number, node in enumerate(nodes) if node["op"] == "amp_cast"}
        products = [node for node in nodes if node["op"] in {"Convolution", "FullyConnected"}]
        found["amp"] = sum(node["inputs"][0][0] in cast for node in products)
    if "aggregated-updates" in args.techniques:
        found["aggregated-updates"] = sum(count for count in updates if count > USUAL)
    return found
