"""Layers that Keras lacks, or whose Keras 3 version would change what is measured; `keras` is the TensorFlow package's own.

- Keras' batch normalization consists of small operators, each a pass over the map; cuDNN and oneDNN have a fused one.
- Keras' dropout draws from its own state, which replicas of one process share; here a seed comes with the samples.

Those here are in training mode, except in calls within `in_use`. Keras' argument for that, `training`, is passed on to layers
by rules that differ between versions; 1.15 passes them a tensor instead.
"""

import contextlib
import math

from with_tensorflow.shim import tf

keras = tf.keras
# Share of the running mean and variance that each step keeps, as in PyTorch and MXNet.
MOMENTUM = 0.9
# More dropout layers than any network has: step and layer together number the draws.
MAX_DROPOUTS = 8


class BatchNorm(keras.layers.Layer):
    """Normalizes each channel in one fused operator: by the batch's mean and variance, updating the running ones, or by the running ones `in_use`."""

    def __init__(self, *, epsilon, gamma="ones"):
        # Scale and statistics are in fp32 under every policy; the map keeps its type.
        super().__init__(dtype="float32")
        self.autocast = False
        self.epsilon, self.gamma_initializer, self.trains = epsilon, gamma, True

    def build(self, shape):
        def weight(name, initializer, *, trainable=True):
            return self.add_weight(name=name, shape=(shape[-1],), initializer=initializer, trainable=trainable)

        self.gamma, self.beta = weight("gamma", self.gamma_initializer), weight("beta", "zeros")
        self.moving_mean = weight("moving_mean", "zeros", trainable=False)
        self.moving_variance = weight("moving_variance", "ones", trainable=False)
        self.built = True

    def call(self, x):
        weights = (tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta))
        running = (tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance))
        if not self.trains:
            statistics = {"mean": running[0], "variance": running[1], "is_training": False}
            return tf.compat.v1.nn.fused_batch_norm(x, *weights, **statistics, epsilon=self.epsilon)[0]
        normalized, *batch = tf.compat.v1.nn.fused_batch_norm(x, *weights, epsilon=self.epsilon)
        for running_variable, old, new in zip((self.moving_mean, self.moving_variance), running, batch):  # noqa: B905 - Python 3.8
            running_variable.assign(old * MOMENTUM + new * (1 - MOMENTUM))
        return normalized


class LocalNorm(keras.layers.Layer):
    """Local response normalization: x / (1 + 1e-4 x the mean of the squares of five neighbouring channels)^0.75."""

    def call(self, x):
        return tf.nn.local_response_normalization(x, depth_radius=2, bias=1.0, alpha=1e-4 / 5, beta=0.75)


class LayerNorm(keras.layers.Layer):
    """Normalizes each image over its whole map, or over other `axes`, with a scale and a shift per channel."""

    def __init__(self, *, epsilon, axes=(1, 2, 3)):
        super().__init__(dtype="float32")
        self.autocast, self.epsilon, self.axes = False, epsilon, list(axes)

    def build(self, shape):
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros")
        self.built = True

    def call(self, x):
        x32 = tf.cast(x, tf.float32)
        moments = tf.nn.moments(x32, self.axes, keepdims=True)
        weights = (tf.convert_to_tensor(self.beta), tf.convert_to_tensor(self.gamma))
        return tf.cast(tf.nn.batch_normalization(x32, *moments, *weights, self.epsilon), x.dtype)


class Attend(keras.layers.Layer):
    """Attention's weightless products: (batch, length, 3 x width), queries, keys and values, to (batch, length, width)."""

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def call(self, qkv):
        length, width = qkv.shape[1], qkv.shape[2] // 3
        head = width // self.heads
        q, k, v = tf.unstack(tf.transpose(tf.reshape(qkv, (-1, length, 3, self.heads, head)), (2, 0, 3, 1, 4)))
        attention = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * head**-0.5)
        return tf.reshape(tf.transpose(tf.matmul(attention, v), (0, 2, 1, 3)), (-1, length, width))


class Gelu(keras.layers.Layer):
    """x times the normal distribution function of x, exactly, as in PyTorch."""

    def call(self, x):
        return 0.5 * x * (1 + tf.math.erf(x * 0.5**0.5))


class Dropout(keras.layers.Layer):
    """Drops a share of its input in training; which elements depends only on the seed, a pair (stream, step), and the layer's number."""

    def __init__(self, rate, *, number):
        super().__init__()
        self.rate, self.number, self.trains = rate, number, True

    def call(self, x, seed):
        if not self.trains:
            return x
        draw = tf.stack([seed[0], seed[1] * MAX_DROPOUTS + self.number])
        kept = tf.random.stateless_uniform(tf.shape(x), draw) >= self.rate
        return x * tf.cast(kept, x.dtype) / (1 - self.rate)


@contextlib.contextmanager
def in_use(net):
    """Run a Keras model in inference mode: no dropout, running statistics. Enter it where the call is traced."""
    layers = [layer for layer in net.layers if isinstance(layer, (BatchNorm, Dropout))]
    for layer in layers:
        layer.trains = False
    try:
        yield
    finally:
        for layer in layers:
            layer.trains = True


def multiplied(net):
    """(weights, positions) of a Keras model's convolutions, dense layers and attention in execution order, for `flop.per_sample`."""
    transposed, others = keras.layers.Conv2DTranspose, (keras.layers.Conv2D, keras.layers.Dense)
    found = []
    for layer in net.layers:
        if isinstance(layer, (transposed, *others)):
            # A transposed convolution uses every weight at each position of its input, like the convolution whose gradient it is.
            used = layer.input if isinstance(layer, transposed) else layer.output
            found.append((math.prod(layer.kernel.shape), math.prod(used.shape[1:-1])))
        elif isinstance(layer, Attend):  # each query times all keys, and its weights times all values
            _, length, width = layer.output.shape
            found.extend([(length * width, length)] * 2)
    return found
