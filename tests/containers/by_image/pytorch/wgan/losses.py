"""Inside the image: a WGAN loses in twenty steps what all frameworks' have to lose from the same weights on the same images and latents.

Prevents networks of one name that are not one network, an update that another framework does otherwise.
"""

import alike
import torch
from flags import parser
from train_pytorch import Wgan
from with_pytorch.ranks import Alone


def losses(model):
    training = Wgan(alike.flags(parser, model), torch, torch.device("cpu"), Alone())
    return alike.copied(training, normalized=model != "wgan-nobn")


alike.hold({model: losses(model) for model in ("wgan", "wgan-gp", "wgan-nobn")})
