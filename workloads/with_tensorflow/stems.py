"""The start of a network for XLA: its first convolution over blocks of pixels, and 3x3 max pooling that keeps the index of each maximum.

`with_pytorch/stems.py` explains the blocks. XLA's backward pass of max pooling is one operator that searches each maximum again;
here it is a sum of masked gradients, which XLA fuses with the operators around it.
"""

from stem_blocks import Blocks
from with_tensorflow.shim import tf

keras = tf.keras


class Blocked(keras.layers.Conv2D):
    """A convolution with a square kernel, a stride and `border` zeros, over blocks of stride x stride pixels; weights have the usual shape."""

    def __init__(self, channels, kernel, stride, *, border, **options: object):
        super().__init__(channels, kernel, stride, padding="valid", **options)
        self.border = border

    def over(self, channels):
        return Blocks(self.kernel_size[0], self.strides[0], self.border, channels)

    def compute_output_shape(self, shape):
        n, *pixels, channels = shape
        return (n, *map(self.over(int(channels)).outputs, pixels), self.filters)

    def call(self, images):
        kernel = tf.cast(tf.convert_to_tensor(self.kernel), images.dtype)
        height, width, channels = map(int, images.shape[1:])
        over = self.over(channels)
        image_after = [over.image_after(pixels) for pixels in (height, width)]
        images = images[:, : height + min(0, image_after[0]), : width + min(0, image_after[1])]
        ends = [(over.image_before, max(0, end)) for end in image_after]
        images = tf.nn.space_to_depth(tf.pad(images, [(0, 0), *ends, (0, over.extra_channels)]), over.stride)
        around = (over.kernel_before, over.kernel_after)
        kernel = tf.pad(tf.transpose(kernel, (3, 0, 1, 2)), [(0, 0), around, around, (0, over.extra_channels)])
        kernel = tf.transpose(tf.nn.space_to_depth(kernel, over.stride), (1, 2, 3, 0))
        sums = tf.nn.conv2d(images, kernel, strides=1, padding="VALID")
        return tf.nn.bias_add(sums, tf.cast(tf.convert_to_tensor(self.bias), sums.dtype)) if self.use_bias else sums


def is_stem(x, kernel, stride):
    """Whether a convolution reads RGB, with a stride and a square kernel."""
    return x.shape[-1] == 3 and not isinstance(kernel, tuple) and stride > 1


class MaxPool(keras.layers.Layer):
    """3x3 max pooling with stride 2, without padding; among equal values the first gets the gradient."""

    def call(self, x):
        height, width = ((int(pixels) - 1) // 2 * 2 + 1 for pixels in x.shape[1:3])  # the rest is never read
        return pooled(x[:, :height, :width])


@tf.custom_gradient
def pooled(x):
    """(n, 2h + 1, 2w + 1, channels) to (n, h, w, channels)."""
    height, width = ((int(pixels) - 1) // 2 for pixels in x.shape[1:3])
    taps = [(row, column) for row in range(3) for column in range(3)]
    largest, max_index = None, None
    for number, (row, column) in enumerate(taps):
        at_tap = x[:, row : row + 2 * height - 1 : 2, column : column + 2 * width - 1 : 2]
        if largest is None:
            largest, max_index = at_tap, tf.zeros_like(at_tap, tf.int8)
        else:
            larger = at_tap > largest
            largest = tf.where(larger, at_tap, largest)
            max_index = tf.where(larger, tf.fill(tf.shape(max_index), tf.constant(number, tf.int8)), max_index)

    def backward(dy):
        masked = [tf.where(tf.equal(max_index, tap), dy, tf.zeros_like(dy)) for tap in range(len(taps))]
        rows = [interleaved(*masked[3 * row : 3 * row + 3], axis=2) for row in range(3)]
        return interleaved(*rows, axis=1)

    return largest, backward


def interleaved(first, middle, last, *, axis):
    """Interleave the gradients of even and odd places along an axis; places that two windows share get the sum. (…, n, …) to (…, 2n + 1, …)."""
    before, after = [[(0, 0)] * 4 for _ in range(2)]
    before[axis], after[axis] = (1, 0), (0, 1)
    shared = tf.pad(first, after) + tf.pad(last, before)
    both = tf.stack([shared, tf.pad(middle, after)], axis=axis + 1)
    shape = shared.shape.as_list()
    shape[0], shape[axis] = -1, 2 * shape[axis]
    joined = tf.reshape(both, shape)
    return joined[:, :-1] if axis == 1 else joined[:, :, :-1]
