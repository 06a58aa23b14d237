"""GoogLeNet, BN-Inception and Inception-v3 in TensorFlow, layer for layer those of `inceptions_torch`. `models_tensorflow` builds them."""

from functools import partial

from layers_tensorflow import average_pool, chain, conv_bn, head, join, max_pool, max_pool_ceil
from stem import is_small


def googlenet(x, seed, *, image_size, num_classes):
    def block(x, one, three, five, pool):
        return join(
            conv_bn(x, one, 1),
            chain(x, [(three[0], 1, 1, 0), (three[1], 3, 1, 1)]),
            chain(x, [(five[0], 1, 1, 0), (five[1], 3, 1, 1)]),
            conv_bn(max_pool(x, 3, 1, padding=1), pool, 1),
        )

    x = conv_bn(x, 64, 3, 1, 1) if is_small(image_size) else max_pool_ceil(conv_bn(x, 64, 7, 2, 3), 3)
    x = max_pool_ceil(chain(x, [(64, 1, 1, 0), (192, 3, 1, 1)]), 3)
    x = block(x, 64, (96, 128), (16, 32), 32)
    x = block(x, 128, (128, 192), (32, 96), 64)
    x = max_pool_ceil(x, 3)
    x = block(x, 192, (96, 208), (16, 48), 64)
    x = block(x, 160, (112, 224), (24, 64), 64)
    x = block(x, 128, (128, 256), (24, 64), 64)
    x = block(x, 112, (144, 288), (32, 64), 64)
    x = block(x, 256, (160, 320), (32, 128), 128)
    x = max_pool_ceil(x, 2)
    x = block(x, 256, (160, 320), (32, 128), 128)
    x = block(x, 384, (192, 384), (48, 128), 128)
    return head(x, num_classes, seed=seed, dropout=0.2)


def inception_bn(x, seed, *, image_size, num_classes):
    del seed  # no dropout
    unit, units = partial(conv_bn, epsilon=1e-5), partial(chain, epsilon=1e-5)

    def block(x, one, three, double, project, *, pool=average_pool):
        return join(
            unit(x, one, 1),
            units(x, [(three[0], 1, 1, 0), (three[1], 3, 1, 1)]),
            units(x, [(double[0], 1, 1, 0), (double[1], 3, 1, 1), (double[1], 3, 1, 1)]),
            unit(pool(x), project, 1),
        )

    def shrink(x, three, double):
        return join(
            units(x, [(three[0], 1, 1, 0), (three[1], 3, 2, 1)]),
            units(x, [(double[0], 1, 1, 0), (double[1], 3, 1, 1), (double[1], 3, 2, 1)]),
            max_pool(x, padding=1),
        )

    x = unit(x, 64, 3, 1, 1) if is_small(image_size) else max_pool(unit(x, 64, 7, 2, 3), padding=1)
    x = max_pool(units(x, [(64, 1, 1, 0), (192, 3, 1, 1)]), padding=1)
    x = block(x, 64, (64, 64), (64, 96), 32)
    x = block(x, 64, (64, 96), (64, 96), 64)
    x = shrink(x, (128, 160), (64, 96))
    x = block(x, 224, (64, 96), (96, 128), 128)
    x = block(x, 192, (96, 128), (96, 128), 128)
    x = block(x, 160, (128, 160), (128, 160), 128)
    x = block(x, 96, (128, 192), (160, 192), 128)
    x = shrink(x, (128, 192), (192, 256))
    x = block(x, 352, (192, 320), (160, 224), 128)
    x = block(x, 352, (192, 320), (192, 224), 128, pool=partial(max_pool, kernel=3, stride=1, padding=1))
    return head(x, num_classes)


def inception_v3(x, seed, *, image_size, num_classes):
    if is_small(image_size):
        x = chain(x, [(32, 3, 1, 1), (32, 3, 1, 1), (64, 3, 1, 1), (80, 1, 1, 0), (192, 3, 1, 1)])
    else:
        x = max_pool(chain(x, [(32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)]))
        x = chain(x, [(80, 1, 1, 0), (192, 3, 1, 0)])
    x = max_pool(x)
    for pool in (32, 64, 64):
        x = v3_a(x, pool)
    x = v3_shrink_a(x)
    for width in (128, 160, 160, 192):
        x = v3_b(x, width)
    x = v3_c(v3_c(v3_shrink_b(x)))
    return head(x, num_classes, seed=seed, dropout=0.5)


def v3_a(x, pool):
    return join(
        conv_bn(x, 64, 1),
        chain(x, [(48, 1, 1, 0), (64, 5, 1, 2)]),
        chain(x, [(64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)]),
        conv_bn(average_pool(x), pool, 1),
    )


def v3_shrink_a(x):
    return join(conv_bn(x, 384, 3, 2), chain(x, [(64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)]), max_pool(x))


def v3_b(x, width):
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return join(
        conv_bn(x, 192, 1),
        chain(x, [(width, 1, 1, 0), (width, *row), (192, *column)]),
        chain(x, [(width, 1, 1, 0), (width, *column), (width, *row), (width, *column), (192, *row)]),
        conv_bn(average_pool(x), 192, 1),
    )


def v3_shrink_b(x):
    return join(
        chain(x, [(192, 1, 1, 0), (320, 3, 2, 0)]),
        chain(x, [(192, 1, 1, 0), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2, 0)]),
        max_pool(x),
    )


def v3_c(x):
    def split(x):
        return join(conv_bn(x, 384, (1, 3), 1, (0, 1)), conv_bn(x, 384, (3, 1), 1, (1, 0)))

    return join(
        conv_bn(x, 320, 1),
        split(conv_bn(x, 384, 1)),
        split(chain(x, [(448, 1, 1, 0), (384, 3, 1, 1)])),
        conv_bn(average_pool(x), 192, 1),
    )
