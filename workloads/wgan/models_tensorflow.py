"""Generator and critic of a Wasserstein GAN in TensorFlow: layer for layer those of `models_torch`, which names the sources.

A transposed convolution that doubles a map pads by 1 on all sides, as Keras' `same` does for kernels of 4. Images are NHWC.
"""

from flags import LEAK, widths
from with_tensorflow.layers import BatchNorm, keras


def build(name, image_size, latent):
    """Build (generator, critic), Keras models whose weights are drawn from Keras' global seed as DCGAN draws them.

    The generator makes (batch, image_size, image_size, 3) between -1 and 1 of (batch, 1, 1, latent); the critic gives (batch, 1, 1, 1).
    """
    normalize = name == "wgan"
    return generator(image_size, latent, normalize=normalize), critic(image_size, normalize=normalize)


def drawn(mean=0.0):
    """Normal with a deviation of 0.02; a new one for each layer, as in Keras 3 one draws the same twice."""
    return keras.initializers.RandomNormal(mean=mean, stddev=0.02)


def convolution(kind, channels, **shape: object):
    return kind(channels, 4, use_bias=False, kernel_initializer=drawn(), **shape)


def normalized(x, *, normalize):
    return BatchNorm(epsilon=1e-5, gamma=drawn(1.0))(x) if normalize else x


def generator(image_size, latent, *, normalize):
    x = source = keras.Input(shape=(1, 1, latent))
    transposed, doubling = keras.layers.Conv2DTranspose, {"strides": 2, "padding": "same"}
    for number, channels in enumerate(reversed(widths(image_size))):
        shape = doubling if number else {}  # the first makes 4 x 4 pixels of 1 x 1
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
