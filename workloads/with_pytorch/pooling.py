"""Max pooling over 3x3 pixels with stride 2, for channels-last images on a GPU: two Triton kernels that touch each byte once.

PyTorch's own backward pass, and TorchInductor's, check for every input pixel each window that might have chosen it;
on an H200 that takes 1.5 ms of a step of ResNet-50 at batch 256, a tenth of which moves the bytes. Here a program handles 2x2 input
pixels, which share four windows. Results are the same: among equal values the first wins, and NaN always does.

    MaxPool(padding=1, ceil_mode=False)     in place of torch.nn.MaxPool2d(3, 2, padding=1)
"""

import torch
import triton
from triton import language as tl

BLOCK = 1024  # pixels x channels per Triton program


@triton.jit
def forward_kernel(  # noqa: PLR0917 - a kernel takes no keywords
    x, y, taps, height, width, rows, columns, padding, channels: tl.constexpr, block: tl.constexpr
):
    """Compute a stretch of one row of `y`, and which of the nine pixels each value comes from."""
    place = tl.program_id(1) * block + tl.arange(0, block)
    inside = place < columns * channels
    column, channel = place // channels, place % channels
    image, row = tl.program_id(0) // rows, tl.program_id(0) % rows
    best = tl.full([block], float("-inf"), tl.float32)
    best_tap = tl.zeros([block], tl.int8)
    for tap in tl.static_range(9):
        i, j = 2 * row - padding + tap // 3, 2 * column - padding + tap % 3
        valid = inside & (i >= 0) & (i < height) & (j >= 0) & (j < width)
        start = (image.to(tl.int64) * height + i) * width * channels
        value = tl.load(x + start + j * channels + channel, mask=valid, other=float("-inf")).to(tl.float32)
        better = valid & ((value > best) | (value != value))  # noqa: PLR0124 - NaN
        best = tl.where(better, value, best)
        best_tap = tl.where(better, tl.full([block], tap, tl.int8), best_tap)
    start = tl.program_id(0).to(tl.int64) * columns * channels
    tl.store(y + start + place, best.to(y.dtype.element_ty), mask=inside)
    tl.store(taps + start + place, best_tap, mask=inside)


@triton.jit
def backward_kernel(  # noqa: PLR0917 - a kernel takes no keywords
    dy, taps, gradient, height, width, rows, columns, row_pairs, padding, channels: tl.constexpr, block: tl.constexpr
):
    """Compute the gradients of two rows of pixels, in pairs of columns: each pixel gets those of the windows that chose it.

    With padding p, pixel i is tap k of window o if i + p = 2 o + k: of pair m, the even pixel is tap 0 of window m and tap 2 of
    window m - 1, the odd one tap 1 of window m.
    """
    place = tl.program_id(1) * block + tl.arange(0, block)
    pair, channel = place // channels, place % channels
    image, row_pair = tl.program_id(0) // row_pairs, tl.program_id(0) % row_pairs
    even_even = tl.zeros([block], tl.float32)
    even_odd = tl.zeros([block], tl.float32)
    odd_even = tl.zeros([block], tl.float32)
    odd_odd = tl.zeros([block], tl.float32)
    for up in tl.static_range(2):
        for left in tl.static_range(2):
            row, column = row_pair - up, pair - left
            valid = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            start = (image.to(tl.int64) * rows + row) * columns * channels + column * channels + channel
            value = tl.load(dy + start, mask=valid, other=0.0).to(tl.float32)
            tap = tl.load(taps + start, mask=valid, other=-1)
            even_even += tl.where(tap == 6 * up + 2 * left, value, 0.0)
            if left == 0:
                even_odd += tl.where(tap == 6 * up + 1, value, 0.0)
            if up == 0:
                odd_even += tl.where(tap == 3 + 2 * left, value, 0.0)
                if left == 0:
                    odd_odd += tl.where(tap == 4, value, 0.0)
    i, j = 2 * row_pair - padding, 2 * pair - padding
    start = (image.to(tl.int64) * height + i) * width * channels + j * channels + channel
    below, beside = width * channels, channels
    upper, lower = (i >= 0) & (i < height), (i + 1 >= 0) & (i + 1 < height)
    first, second = (j >= 0) & (j < width), (j + 1 >= 0) & (j + 1 < width)
    tl.store(gradient + start, even_even.to(gradient.dtype.element_ty), mask=upper & first)
    tl.store(gradient + start + beside, even_odd.to(gradient.dtype.element_ty), mask=upper & second)
    tl.store(gradient + start + below, odd_even.to(gradient.dtype.element_ty), mask=lower & first)
    tl.store(gradient + start + below + beside, odd_odd.to(gradient.dtype.element_ty), mask=lower & second)


@torch.library.custom_op("dlscale::max_pool", mutates_args=())
def max_pool(images: torch.Tensor, padding: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest value of each window, and its tap: 0 to 8, row by row."""
    images = images.contiguous(memory_format=torch.channels_last)
    batch, channels, height, width = images.shape
    pooled = empty(images, rows, columns)
    taps = torch.empty_like(pooled, dtype=torch.int8)
    grid = (batch * rows, triton.cdiv(columns * channels, BLOCK))
    forward_kernel[grid](images, pooled, taps, height, width, rows, columns, padding, channels, BLOCK)
    return pooled, taps


@torch.library.custom_op("dlscale::max_pool_backward", mutates_args=())
def max_pool_backward(dy: torch.Tensor, taps: torch.Tensor, height: int, width: int, padding: int) -> torch.Tensor:
    """The gradient of the images from that of their pooled values."""
    dy = dy.contiguous(memory_format=torch.channels_last)
    batch, channels, rows, columns = dy.shape
    gradient = empty(dy, height, width)
    row_pairs, pairs = (height + padding + 1) // 2, (width + padding + 1) // 2
    grid = (batch * row_pairs, triton.cdiv(pairs * channels, BLOCK))
    sizes = (height, width, rows, columns, row_pairs, padding, channels)
    backward_kernel[grid](dy, taps, gradient, *sizes, BLOCK)
    return gradient


def empty(like, height, width):
    size = (*like.shape[:2], height, width)
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


@max_pool.register_fake
def _(images, _padding, rows, columns):
    pooled = empty(images, rows, columns)
    return pooled, torch.empty_like(pooled, dtype=torch.int8)


@max_pool_backward.register_fake
def _(dy, _taps, height, width, _padding):
    return empty(dy, height, width)


def keep(ctx, inputs, output):
    images, ctx.padding, _, _ = inputs
    ctx.size = images.shape[2:]
    ctx.save_for_backward(output[1])


def backward(ctx, dy, _):
    (taps,) = ctx.saved_tensors
    return max_pool_backward(dy, taps, *ctx.size, ctx.padding), None, None, None


max_pool.register_autograd(backward, setup_context=keep)


class MaxPool(torch.nn.Module):
    """`torch.nn.MaxPool2d` over 3x3 pixels with stride 2."""

    def __init__(self, *, padding, ceil_mode):
        super().__init__()
        self.padding, self.ceil_mode = padding, ceil_mode

    def forward(self, images):
        if not images.is_cuda:  # as in `operations.layers_of`
            return torch.nn.functional.max_pool2d(images, 3, 2, self.padding, ceil_mode=self.ceil_mode)
        return max_pool(images, self.padding, *map(self.windows, images.shape[2:]))[0]

    def windows(self, pixels):
        """Number of windows along an edge; if rounded up, the last must still begin on a pixel, as in PyTorch."""
        span = pixels + 2 * self.padding - 3
        if not self.ceil_mode:
            return span // 2 + 1
        rounded_up = (span + 1) // 2 + 1
        return rounded_up - 1 if 2 * (rounded_up - 1) >= pixels + self.padding else rounded_up
