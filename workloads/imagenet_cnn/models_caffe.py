"""The convolutional networks of `imagenet_cnn` for Caffe: `extend(net, name, image_size, num_classes)`.

Standard library and syntax of Python 3.6 only. Layer for layer those of `models_torch`, whose sources apply, with the same numbers
of parameters and the same initial distributions; `prototxt_caffe` says where the two Caffes differ, `stem` what changes for small
images.
"""

from functools import partial

from stem import is_small


def extend(net, name, image_size, num_classes):
    """Add to `net` the layers of a network, from the blobs `data` (batch, 3, image_size, image_size) and `label` (batch,) to its loss.

    `data_caffe` has the layers that make those two blobs.
    """
    net.loss(scores(net, name, image_size, num_classes), "label")


def scores(net, name, image_size, num_classes):
    """Add the layers from the blob `data` to the scores of the classes, and give the name of their blob."""
    net.shapes["data"] = 3, image_size
    return net.dense(BUILDERS[name](net, image_size=image_size), num_classes)


def hidden(net, x):
    """Two hidden layers of 4,096, as in AlexNet and VGG."""
    for _ in range(2):
        x = net.dropout(net.relu(net.dense(x, 4096)), 0.5)
    return x


def alexnet(net, image_size):
    x = net.convolution("data", 64, *((3, 1, 1) if is_small(image_size) else (11, 4, 2)))
    x = net.max_pool(net.relu(x), 3, 2)
    x = net.max_pool(net.relu(net.convolution(x, 192, 5, 1, 2)), 3, 2)
    for channels in (384, 256, 256):
        x = net.relu(net.convolution(x, channels, 3, 1, 1))
    return hidden(net, net.max_pool(x, 3, 2))


def googlenet(net, image_size):
    def block(x, one, three, five, pool):
        branches = [
            net.unit(x, one, 1),
            net.unit(net.unit(x, three[0], 1), three[1], 3, 1, 1),
            net.unit(net.unit(x, five[0], 1), five[1], 3, 1, 1),
            net.unit(net.max_pool(x, 3, 1, 1), pool, 1),
        ]
        return net.concatenation(branches)

    if is_small(image_size):
        x = net.unit("data", 64, 3, 1, 1)
    else:
        x = net.max_pool(net.unit("data", 64, 7, 2, 3), 3, 2, up=True)
    x = net.max_pool(net.unit(net.unit(x, 64, 1), 192, 3, 1, 1), 3, 2, up=True)
    x = block(x, 64, (96, 128), (16, 32), 32)
    x = net.max_pool(block(x, 128, (128, 192), (32, 96), 64), 3, 2, up=True)
    x = block(x, 192, (96, 208), (16, 48), 64)
    x = block(x, 160, (112, 224), (24, 64), 64)
    x = block(x, 128, (128, 256), (24, 64), 64)
    x = block(x, 112, (144, 288), (32, 64), 64)
    x = net.max_pool(block(x, 256, (160, 320), (32, 128), 128), 2, 2, up=True)
    x = block(x, 256, (160, 320), (32, 128), 128)
    x = block(x, 384, (192, 384), (48, 128), 128)
    return net.dropout(net.mean(x), 0.2)


def lenet(net, image_size):  # noqa: ARG001 - the same at every size
    x = net.max_pool(net.convolution("data", 20, 5), 2, 2)
    x = net.max_pool(net.convolution(x, 50, 5), 2, 2)
    return net.relu(net.dense(x, 500))


def residual(net, x, channels, stride, units):
    """Add a body of `units`, each (channels, kernel, stride), to `x` or, where the shape changes, to its projection.

    The body's last scale starts at zero, so that the block starts as an identity.
    """
    body = x
    for width, kernel, step in units[:-1]:
        body = net.unit(body, width, kernel, step, kernel // 2, eps=1e-5)
    width, kernel, step = units[-1]
    body = net.convolution(body, width, kernel, step, kernel // 2, bias=False)
    body = net.normalization(body, eps=1e-5, scale=0)
    if stride != 1 or net.shapes[x][0] != channels:
        x = net.normalization(net.convolution(x, channels, 1, stride, bias=False), eps=1e-5)
    return net.relu(net.addition(body, x))


def basic_block(net, x, width, stride):
    return residual(net, x, width, stride, [(width, 3, stride), (width, 3, 1)])


def bottleneck(net, x, width, stride):
    return residual(net, x, 4 * width, stride, [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)])


def resnet(net, image_size, block, depths):
    if is_small(image_size):
        x = net.unit("data", 64, 3, 1, 1, eps=1e-5)
    else:
        x = net.max_pool(net.unit("data", 64, 7, 2, 3, eps=1e-5), 3, 2, 1)
    for stage, depth in enumerate(depths):
        for number in range(depth):
            x = block(net, x, 64 * 2**stage, 2 if stage and not number else 1)
    return net.mean(x)


def vgg(net, image_size, depths):  # noqa: ARG001 - the same at every size
    x = "data"
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            x = net.relu(net.convolution(x, min(64 * 2**stage, 512), 3, 1, 1))
        x = net.max_pool(x, 2, 2)
    return hidden(net, x)


BUILDERS = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "lenet": lenet,
    "resnet18": partial(resnet, block=basic_block, depths=(2, 2, 2, 2)),
    "resnet50": partial(resnet, block=bottleneck, depths=(3, 4, 6, 3)),
    "resnet101": partial(resnet, block=bottleneck, depths=(3, 4, 23, 3)),
    "resnet152": partial(resnet, block=bottleneck, depths=(3, 8, 36, 3)),
    "vgg16": partial(vgg, depths=(2, 2, 3, 3, 3)),
    "vgg19": partial(vgg, depths=(2, 2, 4, 4, 4)),
}
