"""Where a square kernel with a stride lies over blocks of stride x stride pixels: what all frameworks need to move such blocks into channels.

`with_pytorch/stems.py` says what for. Standard library and syntax of Python 3.6 only.
"""

MULTIPLE = 8  # of channels, which tensor cores take at once in 16 bits


class Blocks:
    """Of a convolution over `channels` with `border` zeros around its images.

    front, back: zeros in front of the kernel, so that it begins at the edge of a block, and behind it, so that it ends at one.
    before: zeros in front of the images' rows and columns.
    more: channels of zeros.
    """

    def __init__(self, kernel, stride, border, channels):
        self.kernel, self.stride, self.border = kernel, stride, border
        self.front = -border % stride
        self.back = -(self.front + kernel) % stride
        self.before = border + self.front
        self.more = next(more for more in range(MULTIPLE) if (channels + more) * stride**2 % MULTIPLE == 0)

    def outputs(self, pixels):
        """How many rows, or columns, the convolution makes of so many."""
        return (pixels + 2 * self.border - self.kernel) // self.stride + 1

    def behind(self, pixels):
        """How many pixels of zeros have to follow an edge, fewer than none if some of it is never looked at."""
        reach = self.front + self.kernel + self.back
        return self.stride * (self.outputs(pixels) - 1) + reach - pixels - self.before
