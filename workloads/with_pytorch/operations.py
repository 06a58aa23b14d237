"""The convolutions and dense layers of a PyTorch network in the order in which they run, for `flop.per_sample`."""

import math

import torch
from torch import nn


def layers(net, image_size):
    """(weights, positions) of each, read off the network as built.

    A batch of no images goes through it on the CPU, wherever it is, with one zero that stands for all its numbers: shapes, and neither
    arithmetic nor memory. The meta device would do as well, and imports for a second first.
    """
    found = []

    def read(module, _inputs, output):
        found.append((module.weight.numel(), math.prod(output.shape[2:])))

    hooks = [m.register_forward_hook(read) for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    numbers = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    zeros = {name: torch.zeros((), dtype=number.dtype).expand(number.shape) for name, number in numbers.items()}
    with torch.no_grad():
        torch.func.functional_call(net, zeros, torch.empty(0, 3, image_size, image_size))
    for hook in hooks:
        hook.remove()
    return found
