"""Generator and critic of a Wasserstein GAN in TensorFlow, layer by layer as in `models_torch`, which names the sources.

Keras' `same` pads a transposed convolution that doubles a map by 1 on all sides, for kernels of 4. Images are NHWC.
"""

from functools import partial

from flags import LEAK, PENALIZED, WIDTH, residual_widths, widths
from with_tensorflow.layers import BatchNorm, LayerNorm, keras


def build(name, image_size, latent):
    """Build (generator, critic), Keras models with weights drawn from Keras' global seed as in the authors' program.

    The generator maps (batch, 1, 1, latent) to (batch, image_size, image_size, 3) between -1 and 1; the critic returns one number per image.
    """
    if name == PENALIZED:
        return residual_generator(image_size, latent), residual_critic(image_size)
    normalize = name == "wgan"
    return generator(image_size, latent, normalize=normalize), critic(image_size, normalize=normalize)


def initializer(mean=0.0):
    """Normal with a deviation of 0.02; a new object per layer, because in Keras 3 one object draws the same values twice."""
    return keras.initializers.RandomNormal(mean=mean, stddev=0.02)


def convolution(kind, channels, **shape: object):
    return kind(channels, 4, use_bias=False, kernel_initializer=initializer(), **shape)


def normalized(x, *, normalize):
    return BatchNorm(epsilon=1e-5, gamma=initializer(1.0))(x) if normalize else x


def generator(image_size, latent, *, normalize):
    x = source = keras.Input(shape=(1, 1, latent))
    transposed, doubling = keras.layers.Conv2DTranspose, {"strides": 2, "padding": "same"}
    for number, channels in enumerate(reversed(widths(image_size))):
        shape = doubling if number else {}  # the first expands 1 x 1 pixel to 4 x 4
        x = normalized(convolution(transposed, channels, **shape)(x), normalize=normalize)
        x = keras.layers.ReLU()(x)
    image = keras.layers.Activation("tanh")(convolution(transposed, 3, **doubling)(x))
    return keras.Model(source, image)


def critic(image_size, *, normalize):
    x = image = keras.Input(shape=(image_size, image_size, 3))
    for number, channels in enumerate(widths(image_size)):
        x = convolution(keras.layers.Conv2D, channels, strides=2, padding="same")(x)
        x = normalized(x, normalize=normalize and number > 0)
        x = keras.layers.LeakyReLU(LEAK)(x)
    return keras.Model(image, convolution(keras.layers.Conv2D, 1)(x))


def glorot(kind, units, *shape: int, scale=2.0, **options: object):
    """A layer with a uniformly drawn kernel (Glorot and Bengio 2010), by default with twice the variance, as before a ReLU."""
    initial = keras.initializers.VarianceScaling(scale=scale, mode="fan_avg", distribution="uniform")
    return kind(units, *shape, kernel_initializer=initial, **options)


def residual(x, between, after, norm, *, resample, up):
    """Normalization, ReLU and convolution, twice, plus a 1 x 1 convolution as shortcut; `resample` doubles a map first (`up`) or halves it last."""
    convolution = keras.layers.Conv2D
    body = keras.layers.ReLU()(norm(epsilon=1e-5)(x))
    body = glorot(convolution, between, 3, padding="same", use_bias=False)(resample()(body) if up else body)
    body = keras.layers.ReLU()(norm(epsilon=1e-5)(body))
    body = glorot(convolution, after, 3, padding="same")(body)
    shortcut = glorot(convolution, after, 1, scale=1.0)(resample()(x))
    return keras.layers.Add()([body if up else resample()(body), shortcut])


def residual_generator(image_size, latent):
    first, *channels = residual_widths(image_size)[::-1]
    source = keras.Input(shape=(1, 1, latent))
    x = glorot(keras.layers.Dense, 16 * first, scale=1.0)(keras.layers.Flatten()(source))
    x = keras.layers.Permute((2, 3, 1))(keras.layers.Reshape((first, 4, 4))(x))  # PyTorch's order
    for after in channels:
        x = residual(x, after, after, BatchNorm, resample=keras.layers.UpSampling2D, up=True)
    x = keras.layers.ReLU()(BatchNorm(epsilon=1e-5)(x))
    return keras.Model(source, keras.layers.Activation("tanh")(glorot(keras.layers.Conv2D, 3, 3, padding="same")(x)))


def residual_critic(image_size):
    image = keras.Input(shape=(image_size, image_size, 3))
    x = glorot(keras.layers.Conv2D, WIDTH, 3, padding="same", scale=1.0)(image)
    before = WIDTH
    for after in residual_widths(image_size)[1:]:
        x = residual(x, before, after, LayerNorm, resample=partial(keras.layers.AveragePooling2D, 2), up=False)
        before = after
    return keras.Model(
        image, glorot(keras.layers.Dense, 1, scale=1.0)(keras.layers.Flatten()(keras.layers.Permute((3, 1, 2))(x)))
    )
