"""Inside the image: Deep Speech 2 has over ten steps the losses required of all frameworks, from the same weights on the same utterances.

Prevents different networks of one name.
"""

import recognized
import torch
from flags import SIZES, Size, parser
from train_pytorch import Recognizer
from with_pytorch.ranks import Alone

DIRECTION = ("weight_ih_l{}", "weight_hh_l{}", "bias_ih_l{}", "bias_hh_l{}")


def parameters(net):
    """All parameters except those of normalizations, in the order of `recognized.weights`."""
    found = [p for convolution in net.convolutions for p in (convolution[0].weight, convolution[0].bias)]
    for stack in getattr(net.recurrent, "layers", None) or (net.recurrent.ahead, net.recurrent.back):
        suffixes = ("", "_reverse") if stack.bidirectional else ("",)
        for number in range(stack.num_layers):
            found += [getattr(stack, name.format(number) + suffix) for suffix in suffixes for name in DIRECTION]
    return [*found, *net.full[1].parameters(), *net.output.parameters()]


def losses(size):
    SIZES[recognized.MODEL] = Size(*recognized.SIZES[size])
    training = Recognizer(recognized.flags(parser), torch, torch.device("cpu"), Alone())
    own = parameters(training.net)
    with torch.no_grad():
        for parameter, value in zip(own, recognized.weights([p.shape for p in own]), strict=True):
            parameter.copy_(torch.from_numpy(value))
    return [training.step().item() for _ in range(recognized.STEPS)]


if __name__ == "__main__":
    recognized.check({size: losses(size) for size in recognized.SIZES})
