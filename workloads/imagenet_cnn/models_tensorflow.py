"""The networks of `networks.py` in TensorFlow: `build(name, image_size, num_classes)`.

Uses Keras' functional form, which TensorFlow 1.15 and Keras 3 share. Images are NHWC, TensorFlow's own layout and the only one of its CPU
convolutions. Keras' `same` padding puts the odd row of a strided layer at the end; the networks are published with equal padding on both
sides, so such layers are padded explicitly here.
"""

from networks import add, layers
from with_tensorflow.layers import Attend, BatchNorm, Dropout, Gelu, LayerNorm, LocalNorm, keras, tf
from with_tensorflow.stems import Blocked, MaxPool, is_stem


def build(name, image_size, num_classes, *, auxiliary=True, techniques=()):
    """Build a Keras model of (images, seed): (batch, image_size, image_size, 3) in fp32, and a pair (stream, step) in int32.

    The seed selects what dropout drops; networks without dropout ignore it. Weights are drawn from Keras' global seed by the rules of
    `models_torch`. The model is in training mode, with dropout and batch statistics, except within `with_tensorflow.layers.in_use`.
    With auxiliary classifiers, it returns a list: its scores, and theirs. `techniques` may change how layers compute, but not the result.
    """
    images = keras.Input(shape=(image_size, image_size, 3))
    seed = keras.Input(batch_shape=(2,), dtype="int32")
    maker = Maker(seed, techniques)
    scores = add(maker, images, layers(name, image_size, num_classes, auxiliary=auxiliary))
    return keras.Model([images, seed], [scores, *maker.heads] if maker.heads else scores)


def initial_kernel():
    """He initialization (https://arxiv.org/abs/1502.01852); a new object per layer, because in Keras 3 one object draws the same values twice."""
    return keras.initializers.VarianceScaling(scale=2.0, mode="fan_in", distribution="untruncated_normal")


def pair(number):
    return number if isinstance(number, tuple) else (number, number)


class Tokens(keras.layers.Layer):
    """Tokens of an image's patches, (batch, height, width, channels), after a class token, at learned positions: (batch, tokens, channels)."""

    def __init__(self):
        super().__init__(dtype="float32")

    def build(self, shape):
        _, height, width, channels = shape
        drawn = keras.initializers.RandomNormal(stddev=0.02)
        self.class_token = self.add_weight(name="class_token", shape=(1, 1, channels), initializer="zeros")
        self.positions = self.add_weight(name="positions", shape=(1, height * width + 1, channels), initializer=drawn)
        self.built = True

    def call(self, x):
        tokens = tf.reshape(x, (-1, x.shape[1] * x.shape[2], x.shape[3]))
        first = tf.tile(tf.convert_to_tensor(self.class_token), (tf.shape(x)[0], 1, 1))
        return tf.concat((first, tokens), axis=1) + tf.convert_to_tensor(self.positions)


def padded(x, padding):
    return keras.layers.ZeroPadding2D(padding)(x) if any(pair(padding)) else x


class Maker:
    """Adds a layer of each kind to a Keras tensor, and returns the output tensor."""

    def __init__(self, seed, techniques):
        self.seed, self.techniques, self.dropouts = seed, techniques, 0
        self.heads = []  # scores of auxiliary classifiers

    def convolution(self, x, channels, kernel, stride, padding, *, bias=True):
        options = {"use_bias": bias, "kernel_initializer": initial_kernel()}
        if "space-to-depth" in self.techniques and is_stem(x, kernel, stride):
            return Blocked(channels, kernel, stride, border=padding, **options)(x)
        same = stride == 1 and all(2 * p == k - 1 for p, k in zip(pair(padding), pair(kernel)))  # noqa: B905 - Python 3.8
        if not same:
            x = padded(x, padding)
        return keras.layers.Conv2D(channels, kernel, stride, padding="same" if same else "valid", **options)(x)

    def normalized(self, x, *shape: object, gamma="ones"):
        """The part of a `unit` before its ReLU."""
        *convolution, epsilon = shape
        return BatchNorm(epsilon=epsilon, gamma=gamma)(self.convolution(x, *convolution, bias=False))

    def unit(self, x, *shape: object):
        return self.relu(self.normalized(x, *shape))

    def relu(self, x):
        return keras.layers.ReLU()(x)

    def max_pool(self, x, kernel, stride, padding, up):
        """Max pooling. Padding with zeros is safe after a ReLU, whose least value is 0."""
        inside = (x.shape[1] - kernel) % stride == 0
        if "pooling-index" in self.techniques and (kernel, stride) == (3, 2):
            return MaxPool()(padded(x, padding) if inside or not up else padded(x, ((0, 1), (0, 1))))
        if (stride == 1 and 2 * padding == kernel - 1) or (up and not inside):
            return keras.layers.MaxPool2D(kernel, stride, "same")(x)
        return keras.layers.MaxPool2D(kernel, stride)(padded(x, padding))

    def local_norm(self, x):
        return LocalNorm()(x)

    def average_pool(self, x, kernel, stride, padding):
        return keras.layers.AveragePooling2D(kernel, stride)(padded(x, padding))

    def mean(self, x):
        return keras.layers.GlobalAveragePooling2D()(x)

    def flatten(self, x):
        return keras.layers.Flatten()(x)

    def auxiliary(self, x, layer_list):
        self.heads.append(add(self, x, layer_list))
        return x

    def dropout(self, x, share):
        self.dropouts += 1
        return Dropout(share, number=self.dropouts - 1)(x, self.seed)

    def dense(self, x, units):
        return keras.layers.Dense(units, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01))(x)

    def patches(self, x, channels, pixels):
        return Tokens()(self.convolution(x, channels, pixels, pixels, 0))

    def block(self, x, heads, hidden):
        """A transformer block; sums are in fp32 under every policy, as in PyTorch."""
        width = x.shape[-1]
        attended = self.dense(Attend(heads)(self.dense(self.token_norm(x), 3 * width)), width)
        x = keras.layers.Add(dtype="float32")([x, attended])
        read = self.dense(Gelu()(self.dense(self.token_norm(x), hidden)), width)
        return keras.layers.Add(dtype="float32")([x, read])

    def token_norm(self, x):
        return LayerNorm(epsilon=1e-6, axes=(-1,))(x)

    def class_token(self, x):
        return self.token_norm(x[:, 0])

    def branches(self, x, paths):
        return keras.layers.Concatenate()([add(self, x, path) for path in paths])

    def residual(self, x, units, stride):
        *first, (_, *last) = units
        body, channels = self.normalized(add(self, x, first), *last, gamma="zeros"), last[0]
        if stride != 1 or x.shape[-1] != channels:
            x = self.normalized(x, channels, 1, stride, 0, 1e-5)
        return self.relu(keras.layers.Add()([body, x]))
