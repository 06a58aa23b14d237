"""The layers that the networks of `models_tensorflow` are made of, as functions from one Keras tensor to the next.

Keras' `same` padding puts the odd row of a strided layer at the end; the networks are published with equal rows on both sides, so
that such layers are padded here by hand. Images are NHWC, TensorFlow's own layout: its convolutions for CPUs know no other.
"""

from with_tensorflow.layers import BatchNorm, Dropout, keras


def initial_kernel():
    """He initialization (https://arxiv.org/abs/1502.01852); a new one for each layer, as in Keras 3 one draws the same twice."""
    return keras.initializers.VarianceScaling(scale=2.0, mode="fan_in", distribution="untruncated_normal")


def pair(number):
    return number if isinstance(number, tuple) else (number, number)


def padded(x, padding):
    """Add rows and columns of zeros on both sides."""
    return keras.layers.ZeroPadding2D(padding)(x) if any(pair(padding)) else x


def conv(x, channels, kernel, stride=1, padding=0, *, bias=True):
    """Convolution, `padding` rows and columns of zeros on both sides."""
    same = stride == 1 and all(2 * p == k - 1 for p, k in zip(pair(padding), pair(kernel)))  # noqa: B905 - Python 3.8
    if not same:
        x = padded(x, padding)
    options = {"padding": "same" if same else "valid", "use_bias": bias, "kernel_initializer": initial_kernel()}
    return keras.layers.Conv2D(channels, kernel, stride, **options)(x)


def relu(x):
    return keras.layers.ReLU()(x)


def conv_bn(x, channels, kernel, stride=1, padding=0, *, epsilon=1e-3):
    """Convolution, batch normalization, ReLU."""
    return relu(BatchNorm(epsilon=epsilon)(conv(x, channels, kernel, stride, padding, bias=False)))


def chain(x, units, *, epsilon=1e-3):
    """A sequence of `conv_bn`, each unit (channels, kernel, stride, padding)."""
    for channels, kernel, stride, padding in units:
        x = conv_bn(x, channels, kernel, stride, padding, epsilon=epsilon)
    return x


def join(*branches: object):
    """Join the outputs of parallel branches along the channels."""
    return keras.layers.Concatenate()(list(branches))


def max_pool(x, kernel=3, stride=2, padding=0):
    """Largest of each window. Zeros may pad the map of a ReLU, whose least value they are."""
    if stride == 1 and 2 * padding == kernel - 1:
        return keras.layers.MaxPool2D(kernel, stride, "same")(x)
    return keras.layers.MaxPool2D(kernel, stride)(padded(x, padding))


def max_pool_ceil(x, kernel, stride=2):
    """Largest of each window, the last of which may reach beyond the map's edge."""
    inside = (x.shape[1] - kernel) % stride == 0
    return keras.layers.MaxPool2D(kernel, stride, "valid" if inside else "same")(x)


def average_pool(x):
    """Mean of each 3x3 window, the zeros around the map counted."""
    return keras.layers.AveragePooling2D(3, 1)(padded(x, 1))


def dense(x, features):
    """Fully-connected layer, its weights drawn with a deviation of 0.01."""
    return keras.layers.Dense(features, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01))(x)


def flatten(x):
    return keras.layers.Flatten()(x)


def head(x, num_classes, *, seed=None, dropout=0.0):
    """Mean over the map, then one fully-connected layer."""
    x = keras.layers.GlobalAveragePooling2D()(x)
    if dropout:
        x = Dropout(dropout, number=0)(x, seed)
    return dense(x, num_classes)
