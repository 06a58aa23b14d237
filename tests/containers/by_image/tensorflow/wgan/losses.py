"""Inside the image: a WGAN has PyTorch's losses over twenty steps from the same weights on the same images and latents.

Prevents different networks of one name, an update that differs from PyTorch's.
"""

import alike
from flags import parser
from train_tensorflow import Wgan
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import tf


def losses(model):
    training = Wgan(alike.flags(parser, model), tf, Alone("/cpu:0"))
    alike.transposed(training.variables, tf, normalized=model != "wgan-nobn")
    return training.read([training.step() for _ in range(alike.STEPS)])


alike.check({model: losses(model) for model in ("wgan", "wgan-gp", "wgan-nobn")})
