"""The first convolution of a network over blocks of pixels: the same sums, laid out so that tensor cores can make them.

A convolution over three channels with a stride leaves most of a tensor core's multipliers idle. Moved into channels, a block of
stride x stride pixels makes stride² x 3 of them, over which a smaller kernel goes without a stride: 7x7 with stride 2 over 3
channels is 4x4 over 12. Known as space-to-depth from the MLPerf submissions for ResNet-50. The weights stay those of the layer that
it stands for, with zeros around them, so that parameters, their gradients and what is counted of them are the same.
"""

from torch import nn
from torch.nn import functional

MULTIPLE = 8  # of channels, which tensor cores take at once in 16 bits


class Blocked(nn.Conv2d):
    """In place of `layer`, a convolution with a square kernel, stride and padding, whose weights it has."""

    def __init__(self, layer):
        shape = {"kernel_size": layer.kernel_size, "stride": layer.stride, "padding": layer.padding}
        super().__init__(layer.in_channels, layer.out_channels, **shape, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        kernel, self.step, padding = layer.kernel_size[0], layer.stride[0], layer.padding[0]
        # Zeros in front of the kernel, so that it begins at the edge of a block, and behind it, so that it ends at one.
        self.front = -padding % self.step
        self.back = -(self.front + kernel) % self.step
        self.reach = self.front + kernel + self.back
        self.more = next(more for more in range(MULTIPLE) if (layer.in_channels + more) * self.step**2 % MULTIPLE == 0)

    def forward(self, images):
        before = self.padding[0] + self.front
        ends = [self.behind(pixels, before) for pixels in images.shape[2:]]
        images = functional.pad(images.permute(0, 2, 3, 1), (0, self.more, before, ends[1], before, ends[0]))
        weight = functional.pad(
            self.weight.permute(0, 2, 3, 1), (0, self.more, self.front, self.back, self.front, self.back)
        )
        return functional.conv2d(self.blocks(images), self.blocks(weight), self.bias)

    def behind(self, pixels, before):
        """How many pixels of zeros have to follow an edge, fewer than none if some of it is never looked at."""
        outputs = (pixels + 2 * self.padding[0] - self.kernel_size[0]) // self.step + 1
        return self.step * (outputs - 1) + self.reach - pixels - before

    def blocks(self, pixels):
        """(n, height, width, channels) as (n, stride² x channels, height / stride, width / stride), channels last in memory."""
        n, height, width, channels = pixels.shape
        s = self.step
        pixels = pixels.reshape(n, height // s, s, width // s, s, channels).permute(0, 1, 3, 2, 4, 5)
        return pixels.reshape(n, height // s, width // s, s * s * channels).permute(0, 3, 1, 2)
