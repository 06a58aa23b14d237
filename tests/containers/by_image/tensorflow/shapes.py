"""Inside the image: every network takes every image size that is offered, the edges of the small stem included.

Prevents a map that is pooled away before the last layer, which only a user with that size would see, and a padding that TensorFlow
puts on one side only: the last map must be as large as the papers' layers make it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from layers_tensorflow import keras
from models_tensorflow import BUILDERS
from with_tensorflow.shim import tf

# Height of the last map by hand: (size + 2 padding - kernel) // stride + 1 for one layer after the other.
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
DEEPER = {"resnet101", "resnet152", "vgg19"}
for name, builder in BUILDERS.items():
    for image_size in (32,) if name in DEEPER else (32, 33, 95, 96, 224, 299):
        with tf.Graph().as_default():  # shapes without arithmetic
            images = keras.Input(shape=(image_size, image_size, 3))
            seed = keras.Input(batch_shape=(2,), dtype="int32")
            net = keras.Model([images, seed], builder(images, seed, image_size=image_size, num_classes=10))
        assert net.output.shape == (None, 10), f"{name} at {image_size} pixels gives {net.output.shape}"
        maps = [layer.output.shape[1] for layer in net.layers if len(layer.output.shape) == 4]
        expected = LAST_MAP.get(name, {}).get(image_size, maps[-1])
        assert maps[-1] == expected, f"{name} at {image_size} pixels ends with a map of {maps[-1]}, not {expected}"
