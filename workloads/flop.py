"""Counts the floating-point operations of a network from the shapes of its layers. Standard library and syntax of Python 3.6 only.

A layer is (weights, positions): the numbers that it multiplies by, without biases, and how many outputs of one sample use each of
them: height times width of a convolution's output, 1 for a dense layer. Every weight is multiplied and added once a position, groups and
strides included, so that forward it costs weights x positions multiply-adds, of two operations each.

Backward, the gradients of the weights cost as much again, and so do those of the inputs, which the first layer has no use for:
nobody trains the images (what torch.utils.flop_counter counts too). Additions of biases, normalizations, activations, pooling, loss and
update are left out: they are some per cent of the operations of these networks, and what a device's peak is quoted for does not do them.
It is the arithmetic of the definition, whatever algorithm a library takes (Winograd's has fewer multiplications).
"""


def per_sample(layers):
    """Count one sample: {"forward", "backward"}, in floating-point operations.

    `layers` are (weights, positions) of each convolution and dense layer, first the one that reads the images; a layer that is used
    twice is there twice.
    """
    costs = [2 * weights * positions for weights, positions in layers]
    return {"forward": sum(costs), "backward": 2 * sum(costs) - costs[0]}
