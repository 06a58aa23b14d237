"""Inside the image: every network matches the catalog, has PyTorch's operations, and ends with the papers' map size.

Prevents, in addition to `modelled`, TensorFlow's one-sided padding.
"""

import math

from keras import StatelessScope
from modelled import (
    CATALOG,
    REFERENCE,
    check_local_norm,
    check_operations,
    check_parameters,
    check_rmsprop,
    counted,
    per_sample,
    sizes,
)
from models_tensorflow import build
from networks import MODELS
from with_tensorflow.layers import LocalNorm, multiplied
from with_tensorflow.optimizers import RmsPropMomentum
from with_tensorflow.shim import set_precision, tf

# Height of the last map, by hand: (size + 2 padding - kernel) // stride + 1, layer after layer.
LAST_MAP = {
    "alexnet": {32: 3, 33: 3, 224: 6, 299: 8},
    "googlenet": {32: 4, 33: 4, 224: 7, 299: 9},
    "googlenet-bvlc": {32: 1, 33: 1, 224: 1, 299: 3},
    "inception-bn": {32: 4, 33: 5, 224: 7, 299: 10},
    "inception-v3": {32: 3, 33: 3, 299: 8},
    "inception-v3-aux": {299: 1},  # of the auxiliary classifier
    "lenet": {32: 5, 33: 5},
    "resnet18": {32: 4, 33: 5, 224: 7, 299: 10},
    "resnet50-imagenet-stem": {32: 1, 33: 2, 224: 7, 299: 10},
    "resnet50": {32: 4, 33: 5, 224: 7, 299: 10},
    "vgg16": {32: 1, 33: 1, 224: 7, 299: 9},
    "vit-ti16": {32: 8, 33: 8, 224: 14, 299: 18},
}
# Deeper variants of a family, whose extra layers do not change the map.
FAMILY = {"resnet101": "resnet50", "resnet152": "resnet50", "vgg19": "vgg16", "vit-b16": "vit-ti16"}
FAMILY |= {"googlenet-mxnet": "googlenet-bvlc", "resnet152-imagenet-stem": "resnet50-imagenet-stem"}


def check(name, size):
    """Check a network's shapes and operations at a size, and return it."""
    with StatelessScope(initialize_variables=False):  # no weight is drawn
        net = build(name, size, 1000)
        assert {output.shape for output in net.outputs} == {(None, 1000)}, (
            f"{name} at {size} pixels gives {net.outputs}"
        )
        maps = [layer.output.shape[1] for layer in net.layers if len(layer.output.shape) == 4]
        expected = LAST_MAP[FAMILY.get(name, name)].get(size, maps[-1])
        assert maps[-1] == expected, f"{name} at {size} pixels ends with a map of {maps[-1]}, not {expected}"
        if size in counted(name):
            check_operations(name, size, multiplied(net))
    return net


assert set(CATALOG) == set(MODELS)
for name, (image_size, _) in CATALOG.items():
    for size in sizes(name):
        net = check(name, size)
        if size == image_size:
            check_parameters(name, sum(math.prod(weight.shape) for weight in net.trainable_variables))

weight = tf.Variable([1.0])
rates = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.5}
update = RmsPropMomentum([weight], **rates, rho=0.9, epsilon=1.0, averaging=0.9999)


def step(gradient):
    update.apply([tf.constant([gradient])])
    return weight.numpy()[0], update.averages[0].numpy()[0]


check_rmsprop(step)
check_local_norm(lambda x: LocalNorm()(x.transpose(0, 2, 3, 1)).numpy().transpose(0, 3, 1, 2))
set_precision("bf16")
assert per_sample(multiplied(build("lenet", 32, 1000)))["forward"] == REFERENCE["lenet"]["32"]["forward"]
