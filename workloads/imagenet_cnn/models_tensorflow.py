"""The convolutional networks of `imagenet_cnn` in TensorFlow: `build(name, image_size, num_classes)`.

Layer for layer those of `models_torch`, which names the sources, with the same number of parameters; made of `layers_tensorflow`. Kept in
the functional form of Keras, that TensorFlow 1.15's and Keras 3 share. `stem` says what changes for small images.
"""

from functools import partial

from inceptions_tensorflow import googlenet, inception_bn, inception_v3
from layers_tensorflow import BatchNorm, Dropout, chain, conv, conv_bn, dense, flatten, head, keras, max_pool, relu
from stem import is_small


def build(name, image_size, num_classes):
    """Build a Keras model of (images, seed): (batch, image_size, image_size, 3) in fp32, and a pair (stream, step) in int32.

    The seed says what dropout drops; networks without it ignore it. Weights are drawn from Keras' global seed by the rules of
    `models_torch`. The model trains, with dropout and batch normalization by the batch, except within `with_tensorflow.layers.in_use`.
    """
    images = keras.Input(shape=(image_size, image_size, 3))
    seed = keras.Input(batch_shape=(2,), dtype="int32")
    return keras.Model([images, seed], BUILDERS[name](images, seed, image_size=image_size, num_classes=num_classes))


def classifier(x, seed, num_classes):
    """Two hidden layers of 4,096, as in AlexNet and VGG."""
    x = flatten(x)
    for number in range(2):
        x = Dropout(0.5, number=number)(relu(dense(x, 4096)), seed)
    return dense(x, num_classes)


def alexnet(x, seed, *, image_size, num_classes):
    x = conv(x, 64, 3, padding=1) if is_small(image_size) else conv(x, 64, 11, 4, padding=2)
    x = max_pool(relu(x))
    x = max_pool(relu(conv(x, 192, 5, padding=2)))
    x = relu(conv(x, 384, 3, padding=1))
    x = relu(conv(x, 256, 3, padding=1))
    x = max_pool(relu(conv(x, 256, 3, padding=1)))
    return classifier(x, seed, num_classes)


def lenet(x, seed, *, image_size, num_classes):
    del seed, image_size  # no dropout, one stem for all sizes
    x = max_pool(conv(x, 20, 5), 2)
    x = max_pool(conv(x, 50, 5), 2)
    return dense(relu(dense(flatten(x), 500)), num_classes)


def vgg(x, seed, *, image_size, num_classes, depths):
    del image_size  # no stride in its stem
    channels = 64
    for depth in depths:
        for _ in range(depth):
            x = relu(conv(x, channels, 3, padding=1))
        x = max_pool(x, 2)
        channels = min(2 * channels, 512)
    return classifier(x, seed, num_classes)


def residual(x, body, channels, stride):
    """Add `body` to a shortcut that is a projection where the shape changes; at first a block is its shortcut alone."""
    body = BatchNorm(epsilon=1e-5, gamma="zeros")(body)
    if stride != 1 or x.shape[-1] != channels:
        x = BatchNorm(epsilon=1e-5)(conv(x, channels, 1, stride, bias=False))
    return relu(keras.layers.Add()([body, x]))


def basic_block(x, width, stride):
    body = conv_bn(x, width, 3, stride, 1, epsilon=1e-5)
    return residual(x, conv(body, width, 3, padding=1, bias=False), width, stride)


def bottleneck(x, width, stride):
    body = chain(x, [(width, 1, 1, 0), (width, 3, stride, 1)], epsilon=1e-5)
    return residual(x, conv(body, 4 * width, 1, bias=False), 4 * width, stride)


def resnet(x, seed, *, image_size, num_classes, block, depths):
    del seed  # no dropout
    if is_small(image_size):
        x = conv_bn(x, 64, 3, 1, 1, epsilon=1e-5)
    else:
        x = max_pool(conv_bn(x, 64, 7, 2, 3, epsilon=1e-5), padding=1)
    for stage, depth in enumerate(depths):
        for number in range(depth):
            x = block(x, 64 * 2**stage, 2 if stage and not number else 1)
    return head(x, num_classes)


BUILDERS = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "inception-bn": inception_bn,
    "inception-v3": inception_v3,
    "lenet": lenet,
    "resnet18": partial(resnet, block=basic_block, depths=(2, 2, 2, 2)),
    "resnet50": partial(resnet, block=bottleneck, depths=(3, 4, 6, 3)),
    "resnet101": partial(resnet, block=bottleneck, depths=(3, 4, 23, 3)),
    "resnet152": partial(resnet, block=bottleneck, depths=(3, 8, 36, 3)),
    "vgg16": partial(vgg, depths=(2, 2, 3, 3, 3)),
    "vgg19": partial(vgg, depths=(2, 2, 4, 4, 4)),
}
