"""Generator and critic of a Wasserstein GAN in PyTorch: DCGAN's, as in the authors' own program.

Wasserstein GAN, https://arxiv.org/abs/1701.07875, section 4; DCGAN, https://arxiv.org/abs/1511.06434; layer for layer the `DCGAN_G` and
`DCGAN_D` of https://github.com/martinarjovsky/WassersteinGAN, whose critic ends in one number an image, without a sigmoid. For images of
64 pixels they have 3,576,704 and 2,765,568 parameters. `wgan-nobn` is that program's pair without batch normalization (`DCGAN_G_nobn`,
`DCGAN_D_nobn`), which the paper tries in the generator (figure 6): the same samples then make the same losses, however many devices
share them.
"""

import itertools

from flags import LEAK, WIDTH, widths
from torch import nn


def build(name, image_size, latent):
    """Build (generator, critic), weights drawn from torch's global generator as DCGAN draws them.

    The generator makes (batch, 3, image_size, image_size) between -1 and 1 of (batch, latent, 1, 1); the critic gives (batch, 1, 1, 1).
    """
    normalize = name == "wgan"
    nets = generator(image_size, latent, normalize=normalize), critic(image_size, normalize=normalize)
    for net in nets:
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, mean=1.0, std=0.02)
    return nets


def generator(image_size, latent, *, normalize):
    sizes = [latent, *reversed(widths(image_size))]
    layers = []
    for number, (before, after) in enumerate(itertools.pairwise(sizes)):
        shape = {"stride": 2, "padding": 1} if number else {}  # the first makes 4 x 4 pixels of 1 x 1
        layers.append(nn.ConvTranspose2d(before, after, 4, **shape, bias=False))
        layers += [nn.BatchNorm2d(after)] if normalize else []
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers, nn.ConvTranspose2d(WIDTH, 3, 4, stride=2, padding=1, bias=False), nn.Tanh())


def critic(image_size, *, normalize):
    sizes = [3, *widths(image_size)]
    layers = []
    for number, (before, after) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False))
        layers += [nn.BatchNorm2d(after)] if normalize and number else []
        layers.append(nn.LeakyReLU(LEAK, inplace=True))
    return nn.Sequential(*layers, nn.Conv2d(sizes[-1], 1, 4, bias=False))


class Estimate(nn.Module):
    """What the critic tells of real and made images: the Wasserstein distance that it sees, up to a factor, a scalar."""

    def __init__(self, critic):
        super().__init__()
        self.critic = critic

    def forward(self, real, made):
        # One batch after the other: batch normalization is to see images of one kind. Means of half precision would be too coarse.
        return self.critic(real).float().mean() - self.critic(made).float().mean()
