"""The layers that the networks of `models_tensorflow` are made of, as functions from one Keras tensor to the next.

Keras' `same` padding puts the odd row of a strided layer at the end; the networks are published with equal rows on both sides, so
that such layers are padded here by hand. Images are NHWC, TensorFlow's own layout: its convolutions for CPUs know no other.

`keras` is the TensorFlow package's own; two layers are written here because Keras 3 would change what is measured:

- its batch normalization is put together from small operators, each a pass over the map; cuDNN and oneDNN have it as one;
- its dropout draws from a state of its own, which replicas of one process share; here a seed comes in with the images.
"""

from with_tensorflow.shim import tf

keras = tf.keras
# Share of the old value that the running mean and variance keep at each step, as in PyTorch and MXNet.
MOMENTUM = 0.9
# More than any network has dropout layers: step and layer together number the draws.
DROPOUTS = 8


class BatchNorm(keras.layers.Layer):
    """Normalizes each channel in one fused operator: by mean and variance of the batch, of which it keeps running ones, or by those."""

    def __init__(self, *, epsilon, gamma="ones"):
        # Scale and statistics are in fp32 under every policy, and the map comes and goes as it is.
        super().__init__(dtype="float32")
        self.autocast = False
        self.epsilon, self.gamma_initializer = epsilon, gamma

    def build(self, shape):
        def weight(name, initializer, *, trainable=True):
            return self.add_weight(name=name, shape=(shape[-1],), initializer=initializer, trainable=trainable)

        self.gamma, self.beta = weight("gamma", self.gamma_initializer), weight("beta", "zeros")
        self.moving_mean = weight("moving_mean", "zeros", trainable=False)
        self.moving_variance = weight("moving_variance", "ones", trainable=False)
        self.built = True

    def call(self, x, training=True):  # noqa: FBT002 - Keras' own name and place
        weights = (tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta))
        running = (tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance))
        if not training:
            fixed = {"mean": running[0], "variance": running[1], "is_training": False}
            return tf.compat.v1.nn.fused_batch_norm(x, *weights, **fixed, epsilon=self.epsilon)[0]
        normalized, *batch = tf.compat.v1.nn.fused_batch_norm(x, *weights, epsilon=self.epsilon)
        for kept, old, new in zip((self.moving_mean, self.moving_variance), running, batch):  # noqa: B905 - Python 3.8
            kept.assign(old * MOMENTUM + new * (1 - MOMENTUM))
        return normalized


class Dropout(keras.layers.Layer):
    """Drops a share of its input in training; which follows from the seed, a pair (stream, step), and from the layer's number alone."""

    def __init__(self, rate, *, number):
        super().__init__()
        self.rate, self.number = rate, number

    def call(self, x, seed, training=True):  # noqa: FBT002 - Keras' own name and place
        if not training:
            return x
        draw = tf.stack([seed[0], seed[1] * DROPOUTS + self.number])
        kept = tf.random.stateless_uniform(tf.shape(x), draw) >= self.rate
        return x * tf.cast(kept, x.dtype) / (1 - self.rate)


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
