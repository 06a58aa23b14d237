"""Batch normalization whose statistics are two sums, made in one reading of a batch; for a network that TorchInductor compiles.

It makes variances with Welford's algorithm, a division for every value, where the sums of x and x² are two additions. What those lose,
digits where a channel's mean is large beside its deviation, a shift keeps on which no result depends: by one value of each channel,
which is some deviations from its mean. The running mean would do, were it not written to before the backward pass reads it again.

    OnePass(layer)      in place of torch.nn.BatchNorm2d, whose parameters and buffers it has
"""

import torch
from torch import nn


class OnePass(nn.BatchNorm2d):
    """In place of `layer`, which has weights and running statistics with a momentum."""

    def __init__(self, layer):
        super().__init__(layer.num_features, eps=layer.eps, momentum=layer.momentum, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked

    def forward(self, images):
        if not self.training or not len(images):  # no sample has no first value
            return super().forward(images)
        exact = torch.promote_types(images.dtype, torch.float32)
        shift = images[0, :, 0, 0].detach().to(exact)
        shifted = images.to(exact) - per_channel(shift)
        mean, square = shifted.mean((0, 2, 3)), shifted.square().mean((0, 2, 3))
        variance = (square - mean.square()).clamp_min(0)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        normalized = (shifted - per_channel(mean)) * per_channel(scale) + per_channel(self.bias)
        self.keep(mean.detach() + shift, variance.detach(), count=images.numel() // self.num_features)
        return normalized.to(images.dtype)

    def keep(self, mean, variance, *, count):
        """Take the statistics of a batch into the running ones; the variance as an estimate of the population's."""
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((variance * (count / (count - 1))).to(self.running_var.dtype), self.momentum)


def per_channel(values):
    """(channels) beside (samples, channels, height, width)."""
    return values.view(1, -1, 1, 1)
