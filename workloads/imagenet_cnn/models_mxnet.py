"""The convolutional networks of `imagenet_cnn` in MXNet Gluon: `build(name, image_size, num_classes)`.

Gluon's own model zoo where it has the network; LeNet, GoogLeNet and BN-Inception, which it lacks, are written here. `models_torch` has
the same networks, and `stem` says what changes for small images in both. Known differences, all inside the zoo's bottleneck
ResNets (50, 101, 152), which follow He et al.'s first code: the stride sits in a block's first 1x1 convolution instead of the 3x3
(5 % fewer FLOPs), and the 1x1 convolutions have biases (18,880 parameters more in ResNet-50), which batch normalization cancels.
"""

from functools import partial

from stem import is_small
from with_mxnet.shim import mx

nn = mx.gluon.nn
vision = mx.gluon.model_zoo.vision
resnet_zoo = mx.gluon.model_zoo.vision.resnet
HybridConcurrent = mx.gluon.contrib.nn.HybridConcurrent


def build(name, image_size, num_classes, contexts):
    """Build a network for (batch, 3, image_size, image_size) images, with its weights on each of `contexts`.

    The weights are drawn from MXNet's global generator, by the same rules as in `models_torch`.
    """
    net = BUILDERS[name](image_size=image_size, num_classes=num_classes)
    net.apply(choose_initializers)
    net.initialize(ctx=contexts)
    # Gluon learns the shapes, and draws the weights, when it sees a first image.
    for context in contexts:
        net(mx.nd.zeros((1, 3, image_size, image_size), ctx=context))
    return net


def choose_initializers(block):
    """Set how the weights of one block are drawn; the zoo's own choices differ from network to network."""
    if isinstance(block, nn.Conv2D):
        block.weight.init = mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
    elif isinstance(block, nn.Dense):
        block.weight.init = mx.init.Normal(0.01)
    elif isinstance(block, resnet_zoo.BasicBlockV1 | resnet_zoo.BottleneckV1):
        block.body[-1].gamma.init = mx.init.Zero()


def conv_bn(channels, kernel, strides=1, padding=0, *, epsilon=1e-3):
    """Convolution, batch normalization, ReLU."""
    unit = nn.HybridSequential()
    unit.add(nn.Conv2D(channels, kernel, strides, padding, use_bias=False))
    unit.add(nn.BatchNorm(epsilon=epsilon), nn.Activation("relu"))
    return unit


def sequence(*layers: mx.gluon.HybridBlock):
    """Layers one after the other."""
    chain = nn.HybridSequential()
    chain.add(*layers)
    return chain


def branches(*paths: mx.gluon.HybridBlock):
    """Parallel branches whose outputs are joined along the channels."""
    joined = HybridConcurrent(axis=1)
    joined.add(*paths)
    return joined


def whole(image_size, num_classes, zoo):
    """Take a network of the model zoo as it is, VGG: its stem has no stride and it reads the whole final map."""
    del image_size
    return zoo(classes=num_classes)


def alexnet(image_size, num_classes):
    net = vision.alexnet(classes=num_classes)
    if not is_small(image_size):
        return net
    return sequence(nn.Conv2D(64, 3, padding=1, activation="relu"), *net.features[1:], net.output)


def lenet(image_size, num_classes):
    """LeNet-5 as in Caffe's MNIST example, for three colours; `models_torch` has the source."""
    del image_size
    return sequence(
        *[nn.Conv2D(20, 5), nn.MaxPool2D(), nn.Conv2D(50, 5), nn.MaxPool2D()],
        *[nn.Dense(500, activation="relu"), nn.Dense(num_classes)],
    )


def resnet(image_size, num_classes, zoo):
    net = zoo(classes=num_classes)
    if not is_small(image_size):
        return net
    after_stem = 4  # convolution, normalization, ReLU, pooling
    return sequence(conv_bn(64, 3, 1, 1, epsilon=1e-5), *net.features[after_stem:], net.output)


def inception_v3(image_size, num_classes):
    net = vision.inception_v3(classes=num_classes)
    *layers, _, dropout = net.features
    if is_small(image_size):
        stem = [conv_bn(32, 3, 1, 1), conv_bn(32, 3, 1, 1), conv_bn(64, 3, 1, 1), conv_bn(80, 1), conv_bn(192, 3, 1, 1)]
        layers = stem + layers[6:]
    # The zoo's last pooling is 8x8, which is the whole map at 299 pixels only.
    return sequence(*layers, nn.GlobalAvgPool2D(), dropout, net.output)


def googlenet(image_size, num_classes):
    def block(one, three, five, pool):
        return branches(
            conv_bn(one, 1),
            sequence(conv_bn(three[0], 1), conv_bn(three[1], 3, 1, 1)),
            sequence(conv_bn(five[0], 1), conv_bn(five[1], 3, 1, 1)),
            sequence(nn.MaxPool2D(3, 1, 1), conv_bn(pool, 1)),
        )

    pool = partial(nn.MaxPool2D, strides=2, ceil_mode=True)
    stem = [conv_bn(64, 3, 1, 1)] if is_small(image_size) else [conv_bn(64, 7, 2, 3), pool(3)]
    return sequence(
        *stem,
        *[conv_bn(64, 1), conv_bn(192, 3, 1, 1), pool(3)],
        *[block(64, (96, 128), (16, 32), 32), block(128, (128, 192), (32, 96), 64), pool(3)],
        *[block(192, (96, 208), (16, 48), 64), block(160, (112, 224), (24, 64), 64)],
        *[block(128, (128, 256), (24, 64), 64), block(112, (144, 288), (32, 64), 64)],
        *[block(256, (160, 320), (32, 128), 128), pool(2)],
        *[block(256, (160, 320), (32, 128), 128), block(384, (192, 384), (48, 128), 128)],
        *[nn.GlobalAvgPool2D(), nn.Dropout(0.2), nn.Dense(num_classes)],
    )


def inception_bn(image_size, num_classes):
    unit, pool = partial(conv_bn, epsilon=1e-5), partial(nn.MaxPool2D, 3, 2, 1)

    def block(one, three, double, project, *, kind=nn.AvgPool2D):
        return branches(
            unit(one, 1),
            sequence(unit(three[0], 1), unit(three[1], 3, 1, 1)),
            sequence(unit(double[0], 1), unit(double[1], 3, 1, 1), unit(double[1], 3, 1, 1)),
            sequence(kind(3, 1, 1), unit(project, 1)),
        )

    def shrink(three, double):
        return branches(
            sequence(unit(three[0], 1), unit(three[1], 3, 2, 1)),
            sequence(unit(double[0], 1), unit(double[1], 3, 1, 1), unit(double[1], 3, 2, 1)),
            pool(),
        )

    stem = [unit(64, 3, 1, 1)] if is_small(image_size) else [unit(64, 7, 2, 3), pool()]
    return sequence(
        *stem,
        *[unit(64, 1), unit(192, 3, 1, 1), pool()],
        *[block(64, (64, 64), (64, 96), 32), block(64, (64, 96), (64, 96), 64), shrink((128, 160), (64, 96))],
        *[block(224, (64, 96), (96, 128), 128), block(192, (96, 128), (96, 128), 128)],
        *[block(160, (128, 160), (128, 160), 128), block(96, (128, 192), (160, 192), 128)],
        *[shrink((128, 192), (192, 256)), block(352, (192, 320), (160, 224), 128)],
        block(352, (192, 320), (192, 224), 128, kind=nn.MaxPool2D),
        *[nn.GlobalAvgPool2D(), nn.Dense(num_classes)],
    )


BUILDERS = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "inception-bn": inception_bn,
    "inception-v3": inception_v3,
    "lenet": lenet,
    "resnet18": partial(resnet, zoo=vision.resnet18_v1),
    "resnet50": partial(resnet, zoo=vision.resnet50_v1),
    "resnet101": partial(resnet, zoo=vision.resnet101_v1),
    "resnet152": partial(resnet, zoo=vision.resnet152_v1),
    "vgg16": partial(whole, zoo=vision.vgg16),
    "vgg19": partial(whole, zoo=vision.vgg19),
}
