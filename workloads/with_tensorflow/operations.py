"""The convolutions and dense layers of a Keras network in the order in which they run, for `flop.per_sample`."""

import math

from with_tensorflow.shim import tf


def layers(net):
    """(weights, positions) of each, read off the network as built; an output is (batch, height, width, channels) or (batch, units)."""
    multiplies = (tf.keras.layers.Conv2D, tf.keras.layers.Dense)
    return [
        (math.prod(layer.kernel.shape), math.prod(layer.output.shape[1:-1]))
        for layer in net.layers
        if isinstance(layer, multiplies)
    ]
