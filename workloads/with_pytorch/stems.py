"""The first convolution of a network over blocks of pixels: the same sums, laid out so that tensor cores can compute them.

A strided convolution over three channels leaves most of a tensor core's multipliers idle. Moved into channels, a block of
stride x stride pixels becomes stride² x 3 of them, and a smaller kernel with stride 1 covers it: 7x7 with stride 2 over 3
channels is 4x4 over 12. Known as space-to-depth from the MLPerf submissions for ResNet-50. The weights stay those of the
replaced layer, zero-padded, so that parameters, their gradients and their counts are the same.
"""

from stem_blocks import Blocks
from torch import nn
from torch.nn import functional


class Blocked(nn.Conv2d):
    """Replaces `layer`, a convolution with a square kernel, stride and padding, and shares its weights."""

    def __init__(self, layer):
        shape = {"kernel_size": layer.kernel_size, "stride": layer.stride, "padding": layer.padding}
        super().__init__(layer.in_channels, layer.out_channels, **shape, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.over = Blocks(layer.kernel_size[0], layer.stride[0], layer.padding[0], layer.in_channels)

    def forward(self, images):
        over = self.over
        height, width = [(over.image_before, over.image_after(pixels)) for pixels in images.shape[2:]]
        images = functional.pad(images.permute(0, 2, 3, 1), (0, over.extra_channels, *width, *height))
        around = (over.kernel_before, over.kernel_after)
        weight = functional.pad(self.weight.permute(0, 2, 3, 1), (0, over.extra_channels, *around, *around))
        return functional.conv2d(self.blocks(images), self.blocks(weight), self.bias)

    def blocks(self, pixels):
        """(n, height, width, channels) to (n, stride² x channels, height / stride, width / stride), channels last in memory."""
        n, height, width, channels = pixels.shape
        s = self.over.stride
        pixels = pixels.reshape(n, height // s, s, width // s, s, channels).permute(0, 1, 3, 2, 4, 5)
        return pixels.reshape(n, height // s, width // s, s * s * channels).permute(0, 3, 1, 2)
