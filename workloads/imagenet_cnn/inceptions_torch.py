"""GoogLeNet, BN-Inception and Inception-v3 in PyTorch, and the layers that they share with ResNet. `models_torch` builds them."""

from functools import partial

import torch
from stem import is_small
from torch import nn


def conv_bn(channels_in, channels, kernel, stride=1, padding=0, *, eps=1e-3):
    """Convolution, batch normalization, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(channels, eps=eps),
        nn.ReLU(inplace=True),
    )


def chain(channels_in, units, *, eps=1e-3):
    """A sequence of `conv_bn`, each unit (channels, kernel, stride, padding)."""
    layers = []
    for channels, kernel, stride, padding in units:
        layers.append(conv_bn(channels_in, channels, kernel, stride, padding, eps=eps))
        channels_in = channels
    return nn.Sequential(*layers)


class Branches(nn.ModuleList):
    """Parallel branches whose outputs are joined along the channels."""

    def forward(self, x):
        return torch.cat([branch(x) for branch in self], dim=1)


def head(channels, num_classes, dropout=0.0):
    """Mean over the map, then one fully-connected layer."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels, num_classes)]


def googlenet(image_size, num_classes):
    def block(channels_in, one, three, five, pool):
        return Branches(
            [
                conv_bn(channels_in, one, 1),
                chain(channels_in, [(three[0], 1, 1, 0), (three[1], 3, 1, 1)]),
                chain(channels_in, [(five[0], 1, 1, 0), (five[1], 3, 1, 1)]),
                nn.Sequential(nn.MaxPool2d(3, 1, padding=1), conv_bn(channels_in, pool, 1)),
            ]
        )

    pool = partial(nn.MaxPool2d, stride=2, ceil_mode=True)
    stem = [conv_bn(3, 64, 3, 1, 1)] if is_small(image_size) else [conv_bn(3, 64, 7, 2, 3), pool(3)]
    return nn.Sequential(
        *stem,
        *[conv_bn(64, 64, 1), conv_bn(64, 192, 3, 1, 1), pool(3)],
        *[block(192, 64, (96, 128), (16, 32), 32), block(256, 128, (128, 192), (32, 96), 64), pool(3)],
        *[block(480, 192, (96, 208), (16, 48), 64), block(512, 160, (112, 224), (24, 64), 64)],
        *[block(512, 128, (128, 256), (24, 64), 64), block(512, 112, (144, 288), (32, 64), 64)],
        *[block(528, 256, (160, 320), (32, 128), 128), pool(2)],
        *[block(832, 256, (160, 320), (32, 128), 128), block(832, 384, (192, 384), (48, 128), 128)],
        *head(1024, num_classes, dropout=0.2),
    )


def inception_bn(image_size, num_classes):
    unit, units = partial(conv_bn, eps=1e-5), partial(chain, eps=1e-5)
    pool = partial(nn.MaxPool2d, 3, 2, padding=1)

    def block(channels_in, one, three, double, project, *, kind=nn.AvgPool2d):
        return Branches(
            [
                unit(channels_in, one, 1),
                units(channels_in, [(three[0], 1, 1, 0), (three[1], 3, 1, 1)]),
                units(channels_in, [(double[0], 1, 1, 0), (double[1], 3, 1, 1), (double[1], 3, 1, 1)]),
                nn.Sequential(kind(3, 1, padding=1), unit(channels_in, project, 1)),
            ]
        )

    def shrink(channels_in, three, double):
        return Branches(
            [
                units(channels_in, [(three[0], 1, 1, 0), (three[1], 3, 2, 1)]),
                units(channels_in, [(double[0], 1, 1, 0), (double[1], 3, 1, 1), (double[1], 3, 2, 1)]),
                pool(),
            ]
        )

    stem = [unit(3, 64, 3, 1, 1)] if is_small(image_size) else [unit(3, 64, 7, 2, 3), pool()]
    return nn.Sequential(
        *stem,
        *[unit(64, 64, 1), unit(64, 192, 3, 1, 1), pool()],
        *[block(192, 64, (64, 64), (64, 96), 32), block(256, 64, (64, 96), (64, 96), 64)],
        *[shrink(320, (128, 160), (64, 96)), block(576, 224, (64, 96), (96, 128), 128)],
        *[block(576, 192, (96, 128), (96, 128), 128), block(576, 160, (128, 160), (128, 160), 128)],
        *[block(608, 96, (128, 192), (160, 192), 128), shrink(608, (128, 192), (192, 256))],
        block(1056, 352, (192, 320), (160, 224), 128),
        block(1024, 352, (192, 320), (192, 224), 128, kind=nn.MaxPool2d),
        *head(1024, num_classes),
    )


def inception_v3(image_size, num_classes):
    if is_small(image_size):
        stem = [chain(3, [(32, 3, 1, 1), (32, 3, 1, 1), (64, 3, 1, 1), (80, 1, 1, 0), (192, 3, 1, 1)])]
    else:
        first, second = [(32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)], [(80, 1, 1, 0), (192, 3, 1, 0)]
        stem = [chain(3, first), nn.MaxPool2d(3, 2), chain(64, second)]
    return nn.Sequential(
        *[*stem, nn.MaxPool2d(3, 2)],
        *[v3_a(192, 32), v3_a(256, 64), v3_a(288, 64), v3_shrink_a()],
        *[v3_b(128), v3_b(160), v3_b(160), v3_b(192), v3_shrink_b()],
        *[v3_c(1280), v3_c(2048)],
        *head(2048, num_classes, dropout=0.5),
    )


def v3_mean(channels_in, channels):
    return nn.Sequential(nn.AvgPool2d(3, 1, padding=1), conv_bn(channels_in, channels, 1))


def v3_a(channels_in, pool):
    five = chain(channels_in, [(48, 1, 1, 0), (64, 5, 1, 2)])
    double = chain(channels_in, [(64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)])
    return Branches([conv_bn(channels_in, 64, 1), five, double, v3_mean(channels_in, pool)])


def v3_shrink_a():
    double = chain(288, [(64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)])
    return Branches([conv_bn(288, 384, 3, 2), double, nn.MaxPool2d(3, 2)])


def v3_b(width):
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    seven = chain(768, [(width, 1, 1, 0), (width, *row), (192, *column)])
    double = chain(768, [(width, 1, 1, 0), (width, *column), (width, *row), (width, *column), (192, *row)])
    return Branches([conv_bn(768, 192, 1), seven, double, v3_mean(768, 192)])


def v3_shrink_b():
    three = chain(768, [(192, 1, 1, 0), (320, 3, 2, 0)])
    seven = chain(768, [(192, 1, 1, 0), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2, 0)])
    return Branches([three, seven, nn.MaxPool2d(3, 2)])


def v3_c(channels_in):
    def split():
        return Branches([conv_bn(384, 384, (1, 3), 1, (0, 1)), conv_bn(384, 384, (3, 1), 1, (1, 0))])

    three = nn.Sequential(conv_bn(channels_in, 384, 1), split())
    double = nn.Sequential(chain(channels_in, [(448, 1, 1, 0), (384, 3, 1, 1)]), split())
    return Branches([conv_bn(channels_in, 320, 1), three, double, v3_mean(channels_in, 192)])
