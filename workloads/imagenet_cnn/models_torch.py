"""The networks of `networks.py` in PyTorch: `build(name, image_size, num_classes)`."""

import torch
from networks import layers
from torch import nn
from with_pytorch.transformers import EncoderBlock


def build(name, image_size, num_classes, *, auxiliary=True):
    """Build a network for (batch, 3, image_size, image_size) images, its weights drawn from torch's global generator.

    With auxiliary classifiers, it returns a tuple in training: its scores, and theirs.

    Convolutions use He initialization (https://arxiv.org/abs/1502.01852). Fully-connected layers have a deviation of 0.01, as in the
    AlexNet paper, so that training starts at a loss of ln(classes). Residual blocks start as identities, so that deep networks
    train without a learning rate schedule (Goyal et al., https://arxiv.org/abs/1706.02677, section 5.1).
    """
    net = build_uninitialized(name, image_size, num_classes, auxiliary=auxiliary)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        elif isinstance(module, Residual):
            nn.init.zeros_(module.body[-1].weight)
        elif isinstance(module, Patches):
            nn.init.normal_(module.positions, std=0.02)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return net


def build_uninitialized(name, image_size, num_classes, *, auxiliary=True):
    """Build the network with PyTorch's default weights."""
    made = Maker(3, image_size).sequence(layers(name, image_size, num_classes, auxiliary=auxiliary))
    return Headed(*made) if any(isinstance(part, Auxiliary) for part in made) else made


class Auxiliary(nn.Sequential):
    pass


class Headed(nn.Sequential):
    """A chain with auxiliary classifiers, each of which reads a map that the chain also passes on."""

    def forward(self, x):
        heads = []
        for part in self:
            if not isinstance(part, Auxiliary):
                x = part(x)
            elif self.training:
                heads.append(part(x))
        return (x, *heads) if heads else x


class Branches(nn.ModuleList):
    def forward(self, x):
        return torch.cat([branch(x) for branch in self], dim=1)


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut, self.relu = body, shortcut, nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


class Patches(nn.Module):
    """Tokens of an image's patches, after a class token, at learned positions: (batch, tokens, channels)."""

    def __init__(self, read, channels, pixels, count):
        super().__init__()
        self.embedding = nn.Conv2d(read, channels, pixels, pixels)
        self.class_token = nn.Parameter(torch.zeros(1, 1, channels))
        self.positions = nn.Parameter(torch.zeros(1, count + 1, channels))

    def forward(self, images):
        tokens = self.embedding(images).flatten(2).transpose(1, 2)
        return torch.cat((self.class_token.expand(len(tokens), -1, -1), tokens), dim=1) + self.positions


class ClassToken(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x[:, 0])


class Maker:
    """Makes a module of each kind of layer, for an input map of `channels` channels and `size` pixels of height; updates both to the output's."""

    def __init__(self, channels, size):
        self.channels, self.size = channels, size

    def sequence(self, layer_list):
        return nn.Sequential(*[getattr(self, kind)(*arguments) for kind, *arguments in layer_list])

    def slide_window(self, kernel, stride, padding, *, up=False):
        """Set `size` to the map's height after a sliding window."""
        kernel, padding = (both[0] if isinstance(both, tuple) else both for both in (kernel, padding))
        excess = self.size + 2 * padding - kernel
        self.size = (-(-excess // stride) if up else excess // stride) + 1

    def convolution(self, channels, kernel, stride, padding, *, bias=True):
        before, self.channels = self.channels, channels
        self.slide_window(kernel, stride, padding)
        return nn.Conv2d(before, channels, kernel, stride, padding, bias=bias)

    def normalized(self, *shape: object):
        """The part of a `unit` before its ReLU."""
        *convolution, epsilon = shape
        return [self.convolution(*convolution, bias=False), nn.BatchNorm2d(self.channels, eps=epsilon)]

    def unit(self, *shape: object):
        return nn.Sequential(*self.normalized(*shape), self.relu())

    def relu(self):
        return nn.ReLU(inplace=True)

    def max_pool(self, kernel, stride, padding, up):
        self.slide_window(kernel, stride, padding, up=up)
        return nn.MaxPool2d(kernel, stride, padding, ceil_mode=up)

    def local_norm(self):
        return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)

    def average_pool(self, kernel, stride, padding):
        self.slide_window(kernel, stride, padding)
        return nn.AvgPool2d(kernel, stride, padding)

    def mean(self):
        self.size = 1
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), self.flatten())

    def flatten(self):
        self.channels, self.size = self.channels * self.size**2, 1
        return nn.Flatten()

    def dropout(self, share):
        return nn.Dropout(share)

    def dense(self, units):
        before, self.channels = self.channels, units
        return nn.Linear(before, units)

    def patches(self, channels, pixels):
        read, self.channels = self.channels, channels
        self.slide_window(pixels, pixels, 0)
        return Patches(read, channels, pixels, self.size**2)

    def block(self, heads, hidden):
        return EncoderBlock(self.channels, heads, hidden, epsilon=1e-6)

    def class_token(self):
        self.size = 1
        return ClassToken(self.channels, eps=1e-6)

    def branches(self, paths):
        makers = [Maker(self.channels, self.size) for _ in paths]
        made = Branches([maker.sequence(path) for maker, path in zip(makers, paths, strict=True)])
        self.channels, self.size = sum(maker.channels for maker in makers), makers[0].size
        return made

    def auxiliary(self, layer_list):
        return Auxiliary(*Maker(self.channels, self.size).sequence(layer_list))

    def residual(self, units, stride):
        before = Maker(self.channels, self.size)
        *first, (_, *last) = units
        body = nn.Sequential(*self.sequence(first), *self.normalized(*last))
        if stride == 1 and before.channels == self.channels:
            return Residual(body, nn.Identity())
        return Residual(body, nn.Sequential(*before.normalized(self.channels, 1, stride, 0, 1e-5)))
