"""Inside the image: every network takes every image size that is offered, with the parameters that the catalog says (first argument, JSON)
and the operations of PyTorch's counter.

Prevents a map that is pooled away before the last layer, which only a user with that size would see, and a padding that TensorFlow puts on
one side only: the last map must be as large as the papers' layers make it; a layer that is missing, doubled or of another width, which would
make a throughput that compares with nothing; frameworks that are held against each other by another count of operations, and so by another
utilisation.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from flop import per_sample
from models_tensorflow import BUILDERS, build
from with_tensorflow.operations import layers
from with_tensorflow.shim import set_precision, tf

REFERENCE = json.loads((Path(__file__).parents[3] / "golden/flop_per_sample.json").read_text())
# Height of the last map by hand: (size + 2 padding - kernel) // stride + 1 for one layer after the other. 95 and 96 pixels are the edges
# of the small stem.
LAST_MAP = {
    "alexnet": {32: 3, 33: 3, 224: 6, 299: 8},
    "googlenet": {32: 4, 33: 4, 224: 7, 299: 9},
    "inception-bn": {32: 4, 33: 5, 224: 7, 299: 10},
    "inception-v3": {32: 3, 33: 3, 224: 5, 299: 8},
    "lenet": {32: 5, 33: 5},
    "resnet18": {32: 4, 33: 5, 224: 7, 299: 10},
    "resnet50": {32: 4, 33: 5, 224: 7, 299: 10},
    "vgg16": {32: 1, 33: 1, 224: 7, 299: 9},
}
# Deeper ones of a family: more layers that leave the map as it is.
FAMILY = {"resnet101": "resnet50", "resnet152": "resnet50", "vgg19": "vgg16"}


def hold(name, size):
    """Hold a network at a size to its shapes, and give it back."""
    with tf.Graph().as_default():  # without arithmetic: no weight is drawn
        net = build(name, size, 1000)
        assert net.output.shape == (None, 1000), f"{name} at {size} pixels gives {net.output.shape}"
        maps = [layer.output.shape[1] for layer in net.layers if len(layer.output.shape) == 4]
        expected = LAST_MAP[FAMILY.get(name, name)].get(size, maps[-1])
        assert maps[-1] == expected, f"{name} at {size} pixels ends with a map of {maps[-1]}, not {expected}"
        if str(size) in REFERENCE[name]:
            ours, theirs = per_sample(layers(net)), REFERENCE[name][str(size)]
            for phase in ("forward", "backward"):
                assert abs(ours[phase] / theirs[phase] - 1) < 0.02, (name, size, phase, ours, theirs)
    return net


catalog = json.loads(sys.argv[1])
assert set(catalog) == set(BUILDERS)
for name, (image_size, expected) in catalog.items():
    assert {str(image_size), "32"} <= set(REFERENCE[name])
    for size in {32, image_size} if name in FAMILY else {32, 33, 95, 96, 224, 299, image_size}:
        net = hold(name, size)
        if size == image_size:
            found = sum(math.prod(weight.shape) for weight in net.trainable_variables)
            assert found == expected, f"{name} has {found} parameters, the catalog says {expected}"

set_precision("bf16")
assert per_sample(layers(build("lenet", 32, 1000)))["forward"] == REFERENCE["lenet"]["32"]["forward"]
