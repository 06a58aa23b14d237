"""The convolutional networks and Vision Transformers of `imagenet_cnn`, defined once for all frameworks. Standard library and Python 3.6 only.

Each framework's `models_*` builds its layers from the output of `layers(name, image_size, num_classes)`, tuples (kind, *arguments):

    convolution  channels, kernel, stride, padding: with a bias
    unit         channels, kernel, stride, padding, epsilon: a convolution without a bias, batch normalization, ReLU
    relu
    max_pool     kernel, stride, padding, up: the maximum of each window; `up` rounds the map's size up
    local_norm   over five neighbouring channels: x / (1 + 1e-4 x the mean of their squares)^0.75
    average_pool kernel, stride, padding; zeros of the padding count
    mean         over the whole map
    flatten, dense (units), dropout (share)
    branches     lists of layers that read the same map; their outputs are concatenated along the channels
    residual     units, stride: a body, whose last unit has no ReLU and a scale initially zero, plus a shortcut, which is a projection
                 if the shape changes; then ReLU
    patches      channels, pixels: squares of the image as tokens, after a class token, at learned positions
    block        heads, features: a transformer block, normalized before attention and before its two dense layers with GELU between them
    class_token  the first of all tokens, normalized
    auxiliary    layers from the map to scores of their own, next to the chain, which continues from the same map; in training only

Kernels and paddings of two numbers are (height, width). Layers match torchvision's, and so do the parameters and FLOPs that
everybody quotes. These networks have no auxiliary classifiers: throughput benchmarks (tf_cnn_benchmarks, MXNet's image-classification
examples) train without them. Three more networks are those of studies of 2016, with their auxiliary classifiers, loss and update. Fully-connected
layers read the whole final map, as in the papers, instead of one pooled to a fixed size, so AlexNet and VGG
have more weights above 224 pixels.

Sources: LeNet-5 as in Caffe's MNIST example, for three colours (LeCun et al., Gradient-based learning applied to document
recognition, Proceedings of the IEEE 86(11), 1998) · AlexNet https://arxiv.org/abs/1404.5997 · VGG https://arxiv.org/abs/1409.1556 · ResNet https://arxiv.org/abs/1512.03385
with the stride in the 3x3 convolution ("v1.5") · GoogLeNet https://arxiv.org/abs/1409.4842 with batch normalization, its 5x5
branch 3x3 as in torchvision · BN-Inception https://arxiv.org/abs/1502.03167 figure 5 · Inception-v3 https://arxiv.org/abs/1512.00567 ·
googlenet-bvlc https://github.com/BVLC/caffe/blob/1.0/models/bvlc_googlenet/train_val.prototxt · googlenet-mxnet
https://github.com/apache/mxnet/blob/v1.9.x/example/image-classification/symbols/googlenet.py, whose pools MXNet 0.7 rounded up ·
inception-v3-aux https://github.com/tensorflow/models/blob/v1.13.0/research/inception/inception/slim/inception_model.py ·
ViT-B/16 https://arxiv.org/abs/2010.11929 with one dense layer for a head, as it is fine-tuned · vit-ti16, DeiT's smallest,
https://arxiv.org/abs/2012.12877; neither has dropout
"""

from functools import partial

# The published networks shrink an image 32-fold, 4-fold before their first block, which leaves nothing of a 32x32 image. Below this many
# pixels, the stem keeps its channels but not that 4-fold reduction: its convolution becomes 3x3 with stride 1, and a pooling that is part of it
# is dropped, as He et al. do for CIFAR-10 (https://arxiv.org/abs/1512.03385, section 4.2). VGG and LeNet have no such stem. Inception-v3 with
# its published stem needs 75 pixels, AlexNet 63; the next size in use is above both. A transformer's patches then have 4 pixels, not 16.
SMALL_BELOW = 96
# Networks with this suffix keep the published stem at every size, like programs that feed small images to an unmodified network.
UNCHANGED = "-imagenet-stem"
# Weight of each auxiliary classifier's loss relative to the network's own; label smoothing, the share of a label spread over all classes.
AUXILIARY = {"googlenet-bvlc": 0.3, "inception-v3-aux": 0.4}
SMOOTHING = {"inception-v3-aux": 0.1}
# Networks whose own trainer uses RMSprop with momentum instead of SGD, and averages all weights: inception_train.py, next to its model.
RMSPROP = ("inception-v3-aux",)
RHO, EPSILON, AVERAGING = 0.9, 1.0, 0.9999
# Networks that nobody trains with SGD: AdamW as in DeiT, with weight decay for matrices only. PyTorch and TensorFlow build them.
TRANSFORMERS = ("vit-b16", "vit-ti16")


def layers(name, image_size, num_classes, *, auxiliary=True):
    """List the layers from square images of this size in pixels to the class scores; `auxiliary` includes auxiliary classifiers."""
    published = name.replace(UNCHANGED, "")
    small = published == name and image_size < SMALL_BELOW
    scores, found = ("dense", num_classes), []
    for layer in NETWORKS[published](image_size, small):
        if layer[0] != "auxiliary":
            found.append(layer)
        elif auxiliary:
            found.append(("auxiliary", [*layer[1], scores]))
    return [*found, scores]


def add(maker, x, layer_list):
    """Add layers to `x` with the methods of `maker` named after their kinds. Returns the last one's output."""
    for kind, *arguments in layer_list:
        x = getattr(maker, kind)(x, *arguments)
    return x


def convolution(channels, kernel, stride=1, padding=0):
    return "convolution", channels, kernel, stride, padding


def unit(channels, kernel=1, stride=1, padding=0, epsilon=1e-3):
    return "unit", channels, kernel, stride, padding, epsilon


def normalized(*shape: int):
    return [unit(*shape)]


def plain(channels, kernel=1, stride=1, padding=0):
    return [convolution(channels, kernel, stride, padding), RELU]


def average_pool(kernel=3, stride=1, padding=1):
    return "average_pool", kernel, stride, padding


AVERAGE_POOL = average_pool()


def max_pool(kernel=3, stride=2, padding=0, *, up=False):
    return "max_pool", kernel, stride, padding, up


def branches(*paths: list):
    return "branches", paths


RELU, MEAN, FLATTEN = ("relu",), ("mean",), ("flatten",)
# Two hidden layers of 4,096, as in AlexNet and VGG.
HIDDEN = [FLATTEN, *[("dense", 4096), RELU, ("dropout", 0.5)] * 2]


def lenet(_size, _small):
    convolutions = [convolution(20, 5), max_pool(2), convolution(50, 5), max_pool(2)]
    return [*convolutions, FLATTEN, ("dense", 500), RELU]


def alexnet(_size, small):
    return [
        *[convolution(64, 3, 1, 1) if small else convolution(64, 11, 4, 2), RELU, max_pool()],
        *[convolution(192, 5, 1, 2), RELU, max_pool()],
        *[convolution(384, 3, 1, 1), RELU, convolution(256, 3, 1, 1), RELU, convolution(256, 3, 1, 1), RELU],
        *[max_pool(), *HIDDEN],
    ]


def vgg(_size, _small, *, depths):
    stages = []
    for channels, depth in zip((64, 128, 256, 512, 512), depths):  # noqa: B905 - Python 3.6
        stages += [*[convolution(channels, 3, 1, 1), RELU] * depth, max_pool(2)]
    return stages + HIDDEN


def basic_block(width, stride):
    return [unit(width, 3, stride, 1, 1e-5), unit(width, 3, 1, 1, 1e-5)]


def bottleneck(width, stride):
    return [unit(width, epsilon=1e-5), unit(width, 3, stride, 1, 1e-5), unit(4 * width, epsilon=1e-5)]


def resnet(_size, small, *, block, depths):
    found = [unit(64, 3, 1, 1, 1e-5)] if small else [unit(64, 7, 2, 3, 1e-5), max_pool(padding=1)]
    for stage, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            found.append(("residual", block(64 * 2**stage, stride), stride))
    return [*found, MEAN]


def googlenet(size, small, *, of=None):
    """Build torchvision's network, or one trained in 2016: with MXNet (`of` mxnet), without normalization, or Caffe (bvlc), with the paper's."""
    conv, five, padding = (plain, 5, 2) if of else (normalized, 3, 1)
    norms = [("local_norm",)] if of == "bvlc" else []
    head = [average_pool(5, 3, 0), *conv(128), FLATTEN, ("dense", 1024), RELU, ("dropout", 0.7)]
    heads = [("auxiliary", head)] if of == "bvlc" else []
    dropout = {None: 0.2, "bvlc": 0.4, "mxnet": 0}[of]

    def block(one, three, five_by_five, pool):
        return branches(
            conv(one),
            [*conv(three[0]), *conv(three[1], 3, 1, 1)],
            [*conv(five_by_five[0]), *conv(five_by_five[1], five, 1, padding)],
            [max_pool(3, 1, 1), *conv(pool)],
        )

    pool = max_pool(up=True)
    last = size // 8 if small else (size + 1) // 32  # height of the last map
    return [
        *(conv(64, 3, 1, 1) if small else [*conv(64, 7, 2, 3), pool]),
        *[*norms, *conv(64), *conv(192, 3, 1, 1), *norms, pool],
        *[block(64, (96, 128), (16, 32), 32), block(128, (128, 192), (32, 96), 64), pool],
        *[block(192, (96, 208), (16, 48), 64), *heads, block(160, (112, 224), (24, 64), 64)],
        *[block(128, (128, 256), (24, 64), 64), block(112, (144, 288), (32, 64), 64), *heads],
        *[block(256, (160, 320), (32, 128), 128), pool if of else max_pool(2, up=True)],
        *[block(256, (160, 320), (32, 128), 128), block(384, (192, 384), (48, 128), 128)],
        *([average_pool(min(7, last), 1, 0), FLATTEN] if of else [MEAN]),
        *([("dropout", dropout)] if dropout else []),
    ]


def inception_bn(_size, small):
    one_by_one, three_by_three = partial(unit, epsilon=1e-5), partial(unit, kernel=3, padding=1, epsilon=1e-5)

    def block(one, three, double, project, pool=AVERAGE_POOL):
        return branches(
            [one_by_one(one)],
            [one_by_one(three[0]), three_by_three(three[1])],
            [one_by_one(double[0]), three_by_three(double[1]), three_by_three(double[1])],
            [pool, one_by_one(project)],
        )

    def shrink(three, double):
        return branches(
            [one_by_one(three[0]), three_by_three(three[1], stride=2)],
            [one_by_one(double[0]), three_by_three(double[1]), three_by_three(double[1], stride=2)],
            [max_pool(padding=1)],
        )

    return [
        *([three_by_three(64)] if small else [unit(64, 7, 2, 3, 1e-5), max_pool(padding=1)]),
        *[one_by_one(64), three_by_three(192), max_pool(padding=1)],
        *[block(64, (64, 64), (64, 96), 32), block(64, (64, 96), (64, 96), 64), shrink((128, 160), (64, 96))],
        *[block(224, (64, 96), (96, 128), 128), block(192, (96, 128), (96, 128), 128)],
        *[block(160, (128, 160), (128, 160), 128), block(96, (128, 192), (160, 192), 128)],
        *[shrink((128, 192), (192, 256)), block(352, (192, 320), (160, 224), 128)],
        *[block(352, (192, 320), (192, 224), 128, pool=max_pool(3, 1, 1)), MEAN],
    ]


def inception_v3(size, small, *, auxiliary=False):
    row, column = partial(unit, kernel=(1, 7), padding=(0, 3)), partial(unit, kernel=(7, 1), padding=(3, 0))
    three = partial(unit, kernel=3, padding=1)
    split = branches([unit(384, (1, 3), 1, (0, 1))], [unit(384, (3, 1), 1, (1, 0))])

    def a(project):
        double = [unit(64), three(96), three(96)]
        return branches([unit(64)], [unit(48), unit(64, 5, 1, 2)], double, [AVERAGE_POOL, unit(project)])

    def b(width):
        seven = [unit(width), row(width), column(192)]
        double = [unit(width), column(width), row(width), column(width), row(192)]
        return branches([unit(192)], seven, double, [AVERAGE_POOL, unit(192)])

    shrink_a = branches([unit(384, 3, 2)], [unit(64), three(96), unit(96, 3, 2)], [max_pool()])
    shrink_b = branches([unit(192), unit(320, 3, 2)], [unit(192), row(192), column(192), unit(192, 3, 2)], [max_pool()])
    c = branches([unit(320)], [unit(384), split], [unit(448), three(384), split], [AVERAGE_POOL, unit(192)])
    # Heights of the map that the auxiliary classifier reads, and of its inner map, which its second convolution covers.
    read = (size - 3) // 4 if small else (size - 27) // 16
    own = max(0, read - 5) // 3 + 1
    head = [("auxiliary", [average_pool(min(5, read), 3, 0), unit(128), unit(768, own), FLATTEN])] if auxiliary else []
    if small:
        stem = [three(32), three(32), three(64), unit(80), three(192)]
    else:
        stem = [unit(32, 3, 2), unit(32, 3), three(64), max_pool(), unit(80), unit(192, 3)]
    return [
        *[*stem, max_pool(), a(32), a(64), a(64), shrink_a],
        *[b(128), b(160), b(160), b(192), *head, shrink_b, c, c, MEAN, ("dropout", 0.2 if auxiliary else 0.5)],
    ]


def vit(_size, small, *, width, heads):
    return [("patches", width, 4 if small else 16), *[("block", heads, 4 * width)] * 12, ("class_token",)]


NETWORKS = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "googlenet-bvlc": partial(googlenet, of="bvlc"),
    "googlenet-mxnet": partial(googlenet, of="mxnet"),
    "inception-bn": inception_bn,
    "inception-v3": inception_v3,
    "inception-v3-aux": partial(inception_v3, auxiliary=True),
    "lenet": lenet,
    "resnet18": partial(resnet, block=basic_block, depths=(2, 2, 2, 2)),
    "resnet50": partial(resnet, block=bottleneck, depths=(3, 4, 6, 3)),
    "resnet101": partial(resnet, block=bottleneck, depths=(3, 4, 23, 3)),
    "resnet152": partial(resnet, block=bottleneck, depths=(3, 8, 36, 3)),
    "vgg16": partial(vgg, depths=(2, 2, 3, 3, 3)),
    "vgg19": partial(vgg, depths=(2, 2, 4, 4, 4)),
    "vit-b16": partial(vit, width=768, heads=12),
    "vit-ti16": partial(vit, width=192, heads=3),
}
MODELS = (*NETWORKS, f"resnet50{UNCHANGED}", f"resnet152{UNCHANGED}")
# The networks offered with MXNet, whose RMSprop differs from TensorFlow's.
MXNET = tuple(name for name in MODELS if name not in {*RMSPROP, *TRANSFORMERS})
