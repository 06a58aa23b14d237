"""Counts the floating-point operations of a network from the shapes of its layers. Standard library and syntax of Python 3.6 only.

A layer is (weights, positions): the number of weights, without biases, and how many outputs per sample use each of
them: height times width of a convolution's output, 1 for a dense layer. Every weight is multiplied and added once per position, groups and
strides included, so that the forward pass costs weights x positions multiply-adds, of two operations each.

In the backward pass, the gradients of the weights cost the same again, and so do those of the inputs, except in the first layer:
images need no gradient (torch.utils.flop_counter counts it the same way). Additions of biases, normalizations, activations, pooling, loss and
update are left out: they are a few per cent of the operations of these networks, and a device's quoted peak does not apply to them.
The count follows the definition of a layer, whatever algorithm a library uses (Winograd's has fewer multiplications).
"""


def per_sample(layers):
    """FLOP per sample: {"forward", "backward"}.

    `layers` are (weights, positions) of each convolution and dense layer, first the one that reads the images; a layer used
    twice appears twice.
    """
    costs = [2 * weights * positions for weights, positions in layers]
    return {"forward": sum(costs), "backward": 2 * sum(costs) - costs[0]}
