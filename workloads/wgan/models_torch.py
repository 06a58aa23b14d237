"""Generator and critic of a Wasserstein GAN in PyTorch: DCGAN's, as in the authors' own program.

Wasserstein GAN, https://arxiv.org/abs/1701.07875, section 4; DCGAN, https://arxiv.org/abs/1511.06434; layer by layer the `DCGAN_G` and
`DCGAN_D` of https://github.com/martinarjovsky/WassersteinGAN, whose critic ends in one number per image, without a sigmoid. For images of
64 pixels they have 3,576,704 and 2,765,568 parameters. `wgan-nobn` is that program's pair without batch normalization (`DCGAN_G_nobn`,
`DCGAN_D_nobn`), which the paper tries in the generator (figure 6): the same samples then yield the same losses on any number of devices.

`wgan-gp` is the pair of "Improved Training of Wasserstein GANs", https://arxiv.org/abs/1704.00028, in its authors' program for 64 pixels,
https://github.com/igul222/improved_wgan_training/blob/master/gan_64x64.py (`GoodGenerator`, `GoodDiscriminator`): residual blocks;
the critic has layer normalization instead of batch normalization, because the penalty needs its gradient for each image.
"""

import itertools
import math

import torch
from flags import LEAK, PENALIZED, WIDTH, residual_widths, widths
from torch import nn


def build(name, image_size, latent):
    """Build (generator, critic), their weights drawn from torch's global generator as in the authors' program.

    The generator maps (batch, latent, 1, 1) to (batch, 3, image_size, image_size) between -1 and 1; the critic returns one number per image.
    """
    if name == PENALIZED:
        return residual_generator(image_size, latent), residual_critic(image_size)
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
        shape = {"stride": 2, "padding": 1} if number else {}  # the first expands 1 x 1 pixel to 4 x 4
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


class Residual(nn.Module):
    """Normalization, ReLU and convolution, twice, plus a 1 x 1 convolution as shortcut; `resample` doubles a map first (`up`) or halves it last."""

    def __init__(self, before, between, after, norms, *, resample, up):
        super().__init__()
        self.resample, self.up = resample, up
        self.before = norms[0]
        self.first = glorot(nn.Conv2d(before, between, 3, padding=1, bias=False), gain=math.sqrt(2))
        self.between = norms[1]
        self.second = glorot(nn.Conv2d(between, after, 3, padding=1), gain=math.sqrt(2))
        self.shortcut = glorot(nn.Conv2d(before, after, 1))

    def forward(self, x):
        body = self.before(x).relu()
        body = self.between(self.first(self.resample(body) if self.up else body)).relu()
        body = self.second(body)
        return (body if self.up else self.resample(body)) + self.shortcut(self.resample(x))


class Halve(nn.Module):
    """Mean of every 2 x 2 pixels. PyTorch's own pooling, differentiated twice, propagates zeros to all layers before it."""

    def forward(self, x):
        return x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).mean((3, 5))


def glorot(layer, gain=1.0):
    """Draw weights uniformly (Glorot and Bengio 2010), before a ReLU with twice the variance; biases are zero."""
    nn.init.xavier_uniform_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def residual_generator(image_size, latent):
    channels = residual_widths(image_size)[::-1]
    layers = [nn.Flatten(), glorot(nn.Linear(latent, 16 * channels[0])), nn.Unflatten(1, (channels[0], 4, 4))]
    for before, after in itertools.pairwise(channels):
        norms = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
        layers.append(Residual(before, after, after, norms, resample=nn.Upsample(scale_factor=2), up=True))
    image = glorot(nn.Conv2d(WIDTH, 3, 3, padding=1), gain=math.sqrt(2))
    return nn.Sequential(*layers, nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True), image, nn.Tanh())


def residual_critic(image_size):
    channels = residual_widths(image_size)
    layers = [glorot(nn.Conv2d(3, WIDTH, 3, padding=1))]
    for before, after in itertools.pairwise(channels):
        norms = [nn.GroupNorm(1, before) for _ in range(2)]  # one group: over an image's whole map
        layers.append(Residual(before, before, after, norms, resample=Halve(), up=False))
    return nn.Sequential(*layers, nn.Flatten(), glorot(nn.Linear(16 * channels[-1], 1)))


class Estimate(nn.Module):
    """The critic's verdict on real and made images: (estimate, loss), scalars.

    The estimate is the critic's Wasserstein distance, up to a factor. The critic's update minimizes the loss, which includes `penalty` times the
    mean of (norm of the gradient at an image between both - 1)².
    """

    def __init__(self, critic, penalty=None):
        super().__init__()
        self.critic, self.penalty = critic, penalty

    def forward(self, real, made, mix):
        # Separate batches, because batch normalization should see images of one kind only. Half-precision means would be too coarse.
        estimate = self.critic(real).float().mean() - self.critic(made).float().mean()
        if self.penalty is None:
            return estimate, -estimate
        with torch.enable_grad():
            between = (real + mix[:, None, None, None] * (made - real)).requires_grad_()
            scores = self.critic(between.view_as(between))  # a view: PyTorch's operation counter accepts no leaf here
            (slopes,) = torch.autograd.grad(scores.sum(), between, create_graph=True)
        return estimate, self.penalty * ((slopes.float().flatten(1).norm(dim=1) - 1) ** 2).mean() - estimate
