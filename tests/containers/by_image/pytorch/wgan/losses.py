"""Inside the image: a WGAN has over twenty steps the losses required of all frameworks, from the same weights, images and latents.

Prevents different networks of one name, an update that differs between frameworks.
"""

import alike
import torch
from flags import parser
from train_pytorch import Wgan
from with_pytorch.ranks import Alone


def losses(model):
    training = Wgan(alike.flags(parser, model), torch, torch.device("cpu"), Alone())
    return alike.copied(training, normalized=model != "wgan-nobn")


alike.check({model: losses(model) for model in ("wgan", "wgan-gp", "wgan-nobn")})
