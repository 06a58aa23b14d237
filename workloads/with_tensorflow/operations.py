"""The convolutions and dense layers of a Keras network in the order in which they run, for `flop.per_sample`."""

import math

from with_tensorflow.shim import tf


def layers(net):
    """(weights, positions) of each, read off the network as built; maps are (batch, height, width, channels) or (batch, units)."""
    transposed, others = tf.keras.layers.Conv2DTranspose, (tf.keras.layers.Conv2D, tf.keras.layers.Dense)
    found = []
    for layer in net.layers:
        if isinstance(layer, (transposed, *others)):
            # A transposed convolution uses every weight at each position of its input, as the convolution does that it is the gradient of.
            where = layer.input if isinstance(layer, transposed) else layer.output
            found.append((math.prod(layer.kernel.shape), math.prod(where.shape[1:-1])))
    return found
