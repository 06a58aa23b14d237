"""The multiplying layers of a PyTorch network in execution order, for `flop.per_sample`; and FLOP formulas that PyTorch lacks."""

import math

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry, register_flop_formula
from with_pytorch.transformers import Attend

MULTIPLY = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, Attend)


def layers(net, image_size):
    """(weights, positions) of each layer of a network for square RGB images."""
    return layers_of(net, (3, image_size, image_size))


def layers_of(net, shape):
    """(weights, positions) of each layer of a network for samples of a shape, read from the network as built.

    Runs an empty batch through it on the CPU, wherever the network is, with expanded zeros for all parameters and buffers: shapes without
    arithmetic or memory. The meta device would do as well, but its first use spends a second on imports.
    """
    found = []

    def read(module, inputs, output):
        if isinstance(module, Attend):  # each query times all keys, and its weights times all values
            _, heads, length, head = inputs[0].shape
            found.extend([(heads * length * head, length)] * 2)
            return
        if isinstance(module, nn.Linear):
            found.append((module.weight.numel(), math.prod(output.shape[1:-1])))
            return
        # A transposed convolution uses every weight at each position of its input, like the convolution whose gradient it is.
        used = inputs[0] if isinstance(module, nn.ConvTranspose2d) else output
        found.append((module.weight.numel(), math.prod(used.shape[2:])))

    hooks = [m.register_forward_hook(read) for m in net.modules() if isinstance(m, MULTIPLY)]
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    zeros = {name: torch.zeros((), dtype=tensor.dtype).expand(tensor.shape) for name, tensor in tensors.items()}
    with torch.no_grad():
        torch.func.functional_call(net, zeros, torch.empty(0, *shape))
    for hook in hooks:
        hook.remove()
    return found


def recurrent(net, steps):
    """(weights, positions) of each recurrent layer of a network, which uses all its weights in each of the time `steps`."""
    return [
        (sum(p.numel() for p in layer.parameters() if p.dim() == 2), steps)
        for layer in net.modules()
        if isinstance(layer, nn.RNNBase)
    ]


def count_cudnn_recurrence():
    """Register cuDNN's recurrent operators with PyTorch's FLOP counter; without cuDNN a recurrent layer is matrix products, which it knows."""
    for name, formula in (("_cudnn_rnn", recurrence), ("_cudnn_rnn_backward", recurrence_backward)):
        operator = getattr(torch.ops.aten, name)
        if operator not in flop_registry:
            register_flop_formula(operator)(formula)


def recurrence(inputs, weights, *_rest: object, **_named: object):
    """FLOP of the forward pass, from shapes: input (steps, batch, features), or (steps of all, features) of a packed sequence."""
    return 2 * math.prod(inputs[:-1]) * sum(math.prod(weight) for weight in weights if len(weight) == 2)


def recurrence_backward(inputs, weights, *_rest: object, **_named: object):
    """FLOP of the backward pass: gradients of the weights and of their inputs."""
    return 2 * recurrence(inputs, weights)
