"""How a square strided kernel lines up with blocks of stride x stride pixels: what all frameworks need to move such blocks into channels.

`with_pytorch/stems.py` explains why. Standard library and syntax of Python 3.6 only.
"""

MULTIPLE = 8  # channels that tensor cores process together in 16 bits


class Blocks:
    """Geometry of a convolution over `channels`, with `border` zeros around its images.

    front, back: zeros before the kernel, so that it starts at the edge of a block, and after it, so that it ends at one.
    before: zeros before the images' rows and columns.
    more: channels of zeros.
    """

    def __init__(self, kernel, stride, border, channels):
        self.kernel, self.stride, self.border = kernel, stride, border
        self.front = -border % stride
        self.back = -(self.front + kernel) % stride
        self.before = border + self.front
        self.more = next(more for more in range(MULTIPLE) if (channels + more) * stride**2 % MULTIPLE == 0)

    def outputs(self, pixels):
        """Number of output rows or columns for `pixels` input rows or columns."""
        return (pixels + 2 * self.border - self.kernel) // self.stride + 1

    def behind(self, pixels):
        """Zeros to append after `pixels` rows or columns; negative if the last ones are never read."""
        reach = self.front + self.kernel + self.back
        return self.stride * (self.outputs(pixels) - 1) + reach - pixels - self.before
