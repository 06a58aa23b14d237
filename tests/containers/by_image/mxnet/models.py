"""Inside the image: every network matches the catalog, learns, and has PyTorch's operations, except where the networks are known to differ.

Prevents, in addition to `modelled`, a branch that is built but not connected, a weight without a gradient, a gradient of the wrong sign.
"""

import math
from functools import partial

from modelled import (
    CATALOG,
    REFERENCE,
    check_learning,
    check_local_norm,
    check_operations,
    check_parameters,
    counted,
    per_sample,
    sizes,
)
from models_mxnet import MAKERS, build, build_uninitialized, multiplied
from networks import MXNET, NETWORKS, UNCHANGED, basic_block, resnet
from with_mxnet.shim import mx


def saved_by_earlier_stride(image_size, *, published):
    """Operations saved by the zoo's bottleneck ResNets, by hand.

    The stride of the first block of stages 2 to 4 is in its 1x1 convolution instead of its 3x3 one, so the 1x1 has a quarter of the
    positions: it saves three times those of its output, from 256, 512 and 1,024 channels to 128, 256 and 512.
    """
    first = image_size // 8 if published else image_size // 2  # output of stage 2; a small stem has no stride
    return 2 * sum(3 * (first >> stage) ** 2 * (256 << stage) * (128 << stage) for stage in range(3))


def trained(net):
    return [p for p in net.collect_params().values() if p.grad_req != "null"]


def six_steps_lower_the_loss(name):
    mx.random.seed(1)
    net = build(name, 32, 10, [mx.cpu()])
    net.hybridize(static_alloc=True, static_shape=True)  # as in the program
    images, labels = mx.nd.random.normal(shape=(8, 3, 32, 32)), mx.nd.arange(8)
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03, "momentum": 0.9}, kvstore=None)
    losses = []
    for _ in range(6):
        with mx.autograd.record():
            told = net(images)
            losses_of = [
                loss_function(scores, labels) for scores in (told if isinstance(told, tuple | list) else (told,))
            ]
            loss = mx.nd.add_n(*losses_of)
        loss.backward()
        trainer.step(8)
        losses.append(float(loss.mean().asscalar()))
    check_learning(name, losses, [p.name for p in trained(net) if not p.grad().asnumpy().any()])


assert set(CATALOG) == set(MXNET)
for name, (image_size, _) in CATALOG.items():
    for size in sizes(name):
        output = build_uninitialized(name, size, 1000)(mx.sym.var("images"))
        output = mx.sym.Group(output) if isinstance(output, tuple) else output
        (_, *arguments), shapes, _ = output.infer_shape(images=(2, 3, size, size))
        assert set(shapes) == {(2, 1000)}, f"{name} at {size} pixels gives {shapes}"
        if size == image_size:
            check_parameters(name, sum(map(math.prod, arguments)))
    for size in counted(name):
        deep = name.replace(UNCHANGED, "") in {"resnet50", "resnet101", "resnet152"}
        saved = saved_by_earlier_stride(size, published=size >= 96 or UNCHANGED in name) if deep else 0
        check_operations(name, size, multiplied(build_uninitialized(name, size, 1000), size), saved=saved)

# A ResNet that only `networks.py` declares comes from the zoo; the paper has 21.8 million parameters (torchvision: 21,797,672).
NETWORKS["resnet34"] = partial(resnet, block=basic_block, depths=(3, 4, 6, 3))
(_, *arguments), _, _ = build_uninitialized("resnet34", 224, 1000)(mx.sym.var("images")).infer_shape(
    images=(2, 3, 224, 224)
)
assert sum(map(math.prod, arguments)) == 21797672

# As in the program: hybridized, with parameters in half precision.
net = build("lenet", 32, 1000, [mx.cpu()])
net.cast("float16")
net.hybridize(static_alloc=True, static_shape=True)
assert per_sample(multiplied(net, 32))["forward"] == REFERENCE["lenet"]["32"]["forward"]
check_local_norm(lambda x: MAKERS["local_norm"]()(mx.nd.array(x)).asnumpy())
for name in ("resnet18", "inception-bn", "googlenet-bvlc"):
    six_steps_lower_the_loss(name)
