"""How a square kernel with a stride lines up with blocks of stride x stride pixels, for all frameworks that move such blocks into channels.

`with_pytorch/stems.py` explains why. Standard library and syntax of Python 3.6 only.
"""

MULTIPLE = 8  # channels that tensor cores process together in 16 bits


class Blocks:
    """Geometry of a convolution over `channels`, with `border` zeros around its images.

    kernel_before, kernel_after: zeros before and after the kernel's rows and columns, so that it starts and ends at the edge of a block.
    image_before: zeros before the images' rows and columns.
    extra_channels: channels of zeros.
    """

    def __init__(self, kernel, stride, border, channels):
        self.kernel, self.stride, self.border = kernel, stride, border
        self.kernel_before = -border % stride
        self.kernel_after = -(self.kernel_before + kernel) % stride
        self.image_before = border + self.kernel_before
        self.extra_channels = next(extra for extra in range(MULTIPLE) if (channels + extra) * stride**2 % MULTIPLE == 0)

    def outputs(self, pixels):
        """Number of output rows or columns for `pixels` input rows or columns."""
        return (pixels + 2 * self.border - self.kernel) // self.stride + 1

    def image_after(self, pixels):
        """Zeros to append after `pixels` rows or columns; negative if the last ones are never read."""
        reach = self.kernel_before + self.kernel + self.kernel_after
        return self.stride * (self.outputs(pixels) - 1) + reach - pixels - self.image_before
