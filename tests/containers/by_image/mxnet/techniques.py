"""Inside the image: a network trained with MXNet's techniques has the losses of the plain one, step by step, and the same parameters.

Prevents a technique that is accepted but has no effect, an update that treats some or all weights differently, a channels-last network that
joins, normalizes or flattens its maps along another axis, weights that start differently.

MXNet has no channels-last convolution on CPUs: here, wrapped operators transpose maps before and after MXNet's own.
"""

import functools
import json
import os
import subprocess
import sys

import alone
import numpy as np
from flags import parser

STEPS = 6
WORDS = (
    "--image-size=32",
    "--num-classes=10",
    "--batch=4",
    "--learning-rate=0.005",
    "--momentum=0.9",
    "--weight-decay=0.0001",
)


@functools.cache
def trained(model, names=(), *, how="train", **changes):
    """Train in a separate process, like the program. Returns losses, effects, parameters, the norm of the weights and FLOPs."""
    words = [f"--model={model}", *(f"--{name}={value}" for name, value in changes.items())]
    words += [f"--techniques={','.join(names)}"] if names else []
    told = subprocess.run(
        [sys.executable, __file__, how, *words], check=True, stdout=subprocess.PIPE, env=os.environ, text=True
    )
    return json.loads(told.stdout)


def train(how, *words):
    from train_mxnet import Classifier
    from with_mxnet import techniques
    from with_mxnet.training import check, set_up

    args = parser("").parse_args([*alone.ONE, *WORDS, *words])
    check(args, offered=techniques.TECHNIQUES)
    techniques.set_up(args)
    training = Classifier(args, set_up(args))
    if how == "scale":  # fp16 needs a GPU; scaling by a power of two loses nothing in bf16
        from mxnet.contrib import amp

        training.scales = True
        amp.init_trainer(training.trainer)
    losses = training.read([training.step() for _ in range(STEPS)])
    norm = training.parameter_norm()
    told = losses, training.effects(), training.parameter_count(), norm, training.flop_per_sample()
    sys.stdout.write(json.dumps(told))


def check_updates():
    for model, weights in (("alexnet", 16), ("resnet18", 62)):
        plain, nothing, *others = trained(model)
        assert abs(plain[-1] - plain[0]) > 0.01, "a curve this flat would prove nothing"
        losses, effects, *same = trained(model, ("aggregated-updates",))
        assert (nothing, effects) == ({}, {"aggregated-updates": STEPS * min(weights, 60)})
        np.testing.assert_allclose(losses, plain, rtol=1e-5, err_msg=model)
        np.testing.assert_allclose(same[1], others[1], rtol=1e-6)
        assert (same[0], same[2]) == (others[0], others[2])


def check_bf16():
    plain, _, *others = trained("resnet18")
    losses, effects, *same = trained("resnet18", precision="bf16")
    assert effects == {"amp": 21}  # 20 convolutions and the last layer
    assert losses != plain
    np.testing.assert_allclose(losses, plain, rtol=3e-2)
    assert (same[0], same[2]) == (others[0], others[2])
    scaled, *_ = trained("resnet18", how="scale", precision="bf16")
    np.testing.assert_allclose(scaled, losses, rtol=1e-3)


def accepting_channels_last(operator):
    """Wrap a channels-first MXNet operator to accept channels-last maps and weights."""

    @functools.wraps(operator)
    def run(x, *weights, layout=None, **words):
        assert layout == "NHWC", f"{operator.__name__} in {layout}"
        first = [part.transpose((0, 3, 1, 2)) if part.ndim == 4 else part for part in (x, *weights)]
        return operator(*first, **words).transpose((0, 2, 3, 1))

    return run


def check_channels_last():
    """Scores and gradients agree on one batch, no layer keeps the other layout, and the operations are unchanged."""
    from models_mxnet import ChannelsLast, build, graph_of, multiplied, nodes_of
    from with_mxnet.shim import mx
    from with_mxnet.techniques import channels_last

    images = mx.nd.random.normal(shape=(4, 3, 64, 64))
    # A zoo ResNet with and without its stem; branches and padded pools; local norms and auxiliary heads; dense layers on a map.
    for name, size in (
        ("resnet18", 32),
        ("resnet50", 32),
        ("inception-v3", 64),
        ("googlenet-bvlc", 64),
        ("lenet", 32),
        ("vgg16", 32),
    ):
        batch = images[:, :, :size, :size]
        mx.random.seed(1)
        net = build(name, size, 10, [mx.cpu()])
        plain = scores_and_gradient_norms(net, batch, mx)
        cost = multiplied(net, size)
        net = channels_last(net, mx, ChannelsLast())
        nodes = nodes_of(graph_of(net))
        convolutions = [node for node in nodes if node["op"] == "Convolution"]
        assert all(node["attrs"]["layout"] == "NHWC" for node in nodes if node["op"] in {"Convolution", "Pooling"})
        assert multiplied(net, size) == cost
        assert len(convolutions) > 1
        own = {kind: getattr(mx.nd, kind) for kind in ("Convolution", "Pooling")}
        for kind, operator in own.items():
            setattr(mx.nd, kind, accepting_channels_last(operator))
        turned = scores_and_gradient_norms(net, batch, mx)
        for kind, operator in own.items():
            setattr(mx.nd, kind, operator)
        for one, other in zip(turned, plain, strict=True):  # normalizations over few pixels amplify rounding
            np.testing.assert_allclose(one, other, rtol=2e-2, atol=1e-3 * abs(other).max(), err_msg=name)


def scores_and_gradient_norms(net, batch, mx):
    """Return a network's scores, and the norm of each gradient. Dropout, after the last map, drops the same units in both layouts."""
    mx.random.seed(2)
    with mx.autograd.record():
        told = net(batch)
        told = list(told) if isinstance(told, tuple | list) else [told]
        total = mx.nd.add_n(*[(scores * mx.nd.arange(10)).sum() for scores in told])
    total.backward()
    parameters = [p for p in net.collect_params().values() if p.grad_req != "null"]
    norms = np.array([float(p.grad().norm().asscalar()) for p in parameters])
    return [*(scores.asnumpy() for scores in told), norms]


if sys.argv[1] in {"train", "scale"}:
    train(*sys.argv[1:])
else:
    check_updates()
    check_bf16()
    check_channels_last()
