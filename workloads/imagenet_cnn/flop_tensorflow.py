"""The convolutions and dense layers of a Keras network in the order in which they run, for `flop.per_sample`."""

import math

from layers_tensorflow import keras


def layers(net):
    """(weights, positions) of each, read off the network as built; an output is (batch, height, width, channels) or (batch, units)."""
    multiplies = (keras.layers.Conv2D, keras.layers.Dense)
    return [
        (math.prod(layer.kernel.shape), math.prod(layer.output.shape[1:-1]))
        for layer in net.layers
        if isinstance(layer, multiplies)
    ]
