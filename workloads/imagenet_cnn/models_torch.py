"""The convolutional networks of `imagenet_cnn` in PyTorch: `build(name, image_size, num_classes)`.

Layer for layer torchvision's definitions, so that parameters and FLOPs are those that everybody quotes, in one page and without
that dependency. Auxiliary classifiers are left out: throughput benchmarks (tf_cnn_benchmarks, MXNet's image-classification
examples) train without them. Fully-connected layers read the whole final map instead of one pooled to a fixed size, as in the
papers, so AlexNet and VGG have more weights above 224 pixels. `stem` says what changes for small images.

Sources: LeNet-5 as in Caffe's MNIST example, for three colours (LeCun et al., Gradient-based learning applied to document
recognition, Proceedings of the IEEE 86(11), 1998) · AlexNet https://arxiv.org/abs/1404.5997 · VGG https://arxiv.org/abs/1409.1556 · ResNet https://arxiv.org/abs/1512.03385
with the stride in the 3x3 convolution ("v1.5") · GoogLeNet https://arxiv.org/abs/1409.4842 with batch normalization, its 5x5
branch 3x3 as in torchvision · BN-Inception https://arxiv.org/abs/1502.03167 figure 5 · Inception-v3 https://arxiv.org/abs/1512.00567
"""

from functools import partial

from inceptions_torch import conv_bn, googlenet, head, inception_bn, inception_v3
from stem import is_small
from torch import nn


def build(name, image_size, num_classes):
    """Build a network for (batch, 3, image_size, image_size) images, weights drawn from torch's global generator.

    He initialization for convolutions (https://arxiv.org/abs/1502.01852); a deviation of 0.01 for fully-connected layers, as in the
    AlexNet paper, so that training starts at a loss of ln(classes); residual blocks that start as identities, so that deep ones
    train without a learning rate schedule (Goyal et al., https://arxiv.org/abs/1706.02677, section 5.1).
    """
    net = BUILDERS[name](image_size=image_size, num_classes=num_classes)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        elif isinstance(module, Residual):
            nn.init.zeros_(module.body[-1].weight)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return net


def pooled(size, times):
    """Height of a map after `times` 3x3 poolings with stride 2 and no padding."""
    for _ in range(times):
        size = (size - 3) // 2 + 1
    return size


def classifier(features, num_classes):
    """Two hidden layers of 4,096, as in AlexNet and VGG."""
    return [
        nn.Flatten(),
        nn.Linear(features, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, num_classes),
    ]


def alexnet(image_size, num_classes):
    if is_small(image_size):
        first, size = nn.Conv2d(3, 64, 3, padding=1), image_size
    else:
        first, size = nn.Conv2d(3, 64, 11, stride=4, padding=2), (image_size + 2 * 2 - 11) // 4 + 1
    relu, pool = partial(nn.ReLU, inplace=True), partial(nn.MaxPool2d, 3, 2)
    return nn.Sequential(
        *[first, relu(), pool()],
        *[nn.Conv2d(64, 192, 5, padding=2), relu(), pool()],
        *[nn.Conv2d(192, 384, 3, padding=1), relu()],
        *[nn.Conv2d(384, 256, 3, padding=1), relu()],
        *[nn.Conv2d(256, 256, 3, padding=1), relu(), pool()],
        *classifier(256 * pooled(size, 3) ** 2, num_classes),
    )


def lenet(image_size, num_classes):
    return nn.Sequential(
        *[nn.Conv2d(3, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()],
        *[nn.Linear(50 * (((image_size - 4) // 2 - 4) // 2) ** 2, 500), nn.ReLU(inplace=True)],
        nn.Linear(500, num_classes),
    )


def vgg(image_size, num_classes, depths):
    layers, channels_in = [], 3
    for channels, depth in zip((64, 128, 256, 512, 512), depths, strict=True):
        for _ in range(depth):
            layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(inplace=True)]
            channels_in = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, *classifier(512 * (image_size // 32) ** 2, num_classes))


class Residual(nn.Module):
    """A residual block: `body` beside a shortcut that is a projection where the shape changes."""

    def __init__(self, channels_in, channels, stride, body):
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            projection = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def basic_block(channels_in, width, stride):
    unit = partial(conv_bn, eps=1e-5)
    last = [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
    return Residual(channels_in, width, stride, nn.Sequential(unit(channels_in, width, 3, stride, 1), *last))


def bottleneck(channels_in, width, stride):
    unit = partial(conv_bn, eps=1e-5)
    last = [nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)]
    body = nn.Sequential(unit(channels_in, width, 1), unit(width, width, 3, stride, 1), *last)
    return Residual(channels_in, 4 * width, stride, body)


def resnet(image_size, num_classes, block, expansion, depths, *, small_stem=True):
    if small_stem and is_small(image_size):
        layers = [conv_bn(3, 64, 3, 1, 1, eps=1e-5)]
    else:
        layers = [conv_bn(3, 64, 7, 2, 3, eps=1e-5), nn.MaxPool2d(3, 2, padding=1)]
    channels_in = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for number in range(depth):
            layers.append(block(channels_in, width, 2 if stage and not number else 1))
            channels_in = expansion * width
    return nn.Sequential(*layers, *head(channels_in, num_classes))


RESNETS = {
    "resnet18": partial(resnet, block=basic_block, expansion=1, depths=(2, 2, 2, 2)),
    "resnet50": partial(resnet, block=bottleneck, expansion=4, depths=(3, 4, 6, 3)),
    "resnet101": partial(resnet, block=bottleneck, expansion=4, depths=(3, 4, 23, 3)),
    "resnet152": partial(resnet, block=bottleneck, expansion=4, depths=(3, 8, 36, 3)),
}
BUILDERS = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "inception-bn": inception_bn,
    "inception-v3": inception_v3,
    "lenet": lenet,
    **RESNETS,
    **{f"{name}-imagenet-stem": partial(RESNETS[name], small_stem=False) for name in ("resnet50", "resnet152")},
    "vgg16": partial(vgg, depths=(2, 2, 3, 3, 3)),
    "vgg19": partial(vgg, depths=(2, 2, 4, 4, 4)),
}
