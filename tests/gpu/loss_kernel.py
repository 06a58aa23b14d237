"""On a GPU: the suite's loss kernel gives PyTorch's cross-entropy of an output layer and its gradients, also compiled, in parts, and beyond 2**31 scores.

    python3 tests/gpu/loss_kernel.py        in an environment with PyTorch for CUDA; with TRITON_INTERPRET=1 on a CPU

Prevents a row that reads its neighbour's scores, a last block that counts columns it has not, a loss that is NaN only here or that hides
a NaN, a gradient without the factor of the loss.
"""

import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))
from with_pytorch.loss_kernel import output_loss, row_losses

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Rows, width, words, with a bias, type of the products, tolerance relative to the largest value.
CASES = (
    (7, 16, 512, False, torch.float32, 1e-6),
    (5, 16, 4096, True, torch.float32, 1e-6),
    (6, 64, 4097, True, torch.float32, 1e-6),
    (33, 64, 50_304, False, torch.bfloat16, 0.02),
    (9, 64, 30_522, True, torch.bfloat16, 0.02),
)


def plain(x, layer, targets):
    return functional.cross_entropy(functional.linear(x, *(p.to(x.dtype) for p in layer.parameters())).float(), targets)


def loss_and_gradients(loss, x, layer, targets):
    value = loss(x, layer, targets)
    return value, *torch.autograd.grad(value / 4, [x, *layer.parameters()])


torch.manual_seed(1)
compiled = torch.compile(output_loss, backend="inductor" if DEVICE == "cuda" else "aot_eager_decomp_partition")
for rows, width, words, bias, dtype, tolerance in CASES:
    layer = torch.nn.Linear(width, words, bias=bias, device=DEVICE)
    x = (8 * torch.randn(rows, width, device=DEVICE)).to(dtype).requires_grad_()
    targets = torch.randint(words, (rows,), device=DEVICE)
    targets[-1] = words - 1
    expected = loss_and_gradients(plain, x, layer, targets)
    for loss in (output_loss, compiled):
        for found, right in zip(loss_and_gradients(loss, x, layer, targets), expected, strict=True):
            assert found.dtype == right.dtype, (words, found.dtype, right.dtype)
            assert (found - right).abs().max() <= tolerance * right.abs().max(), (words, dtype, found.shape)

for bad in (float("nan"), float("inf")):
    scores = torch.zeros(2, 600, device=DEVICE)
    scores[1, 599] = bad
    losses, _ = row_losses(scores, torch.zeros(2, dtype=torch.int64, device=DEVICE))
    assert losses[0].isfinite(), bad
    assert losses[1].isnan() or losses[1] == torch.inf, bad

if DEVICE == "cuda":
    scores = torch.zeros(43_000, 50_304, device=DEVICE, dtype=torch.bfloat16)  # 2.16e9 of them
    scores[-1, -1] = 20.0
    losses, gradient = row_losses(scores, torch.full((43_000,), 50_303, device=DEVICE))
    torch.testing.assert_close(
        losses[-1], functional.cross_entropy(scores[-1].float(), torch.tensor(50_303, device=DEVICE))
    )
    assert gradient[-1, 0] < gradient[0, 0]
