"""On a GPU: the suite's pooling kernels give what PyTorch's pooling gives, and the gradient of it, on the first pixel of equal ones.

    python3 tests/gpu/pooling.py          in an environment with PyTorch for CUDA

Prevents a window that begins a pixel off, an edge that is read or written beyond the image, a gradient that reaches two of equal pixels.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))
from with_pytorch.pooling import MaxPool

# Padding, whether a last window may hang over, height, width, type.
CASES = (
    (1, False, 112, 112, torch.bfloat16),
    (0, True, 112, 112, torch.float32),
    (0, False, 147, 147, torch.float32),
    (1, False, 15, 18, torch.float32),
    (1, True, 14, 15, torch.float32),
    (1, False, 3, 2, torch.float32),
)

torch.manual_seed(1)
for padding, ceil_mode, height, width, dtype in CASES:
    case = (padding, ceil_mode, height, width, dtype)
    images = torch.randn(4, 64, height, width, device="cuda", dtype=dtype).relu_()  # half of them are equal: zero
    images = images.to(memory_format=torch.channels_last).requires_grad_()
    expected = torch.nn.functional.max_pool2d(images, 3, 2, padding, ceil_mode=ceil_mode)
    found = MaxPool(padding=padding, ceil_mode=ceil_mode)(images)
    assert found.shape == expected.shape, case
    assert torch.equal(found, expected), case
    given = torch.randn_like(expected)
    (right,), (own,) = (torch.autograd.grad(output, images, given) for output in (expected, found))
    torch.testing.assert_close(own, right, msg=str(case))
