"""Dense layers that multiply 8-bit floating-point numbers, for `--precision=fp8`; everything else is as with bf16.

The forward product takes e4m3 numbers; gradients are e5m2 (https://arxiv.org/abs/2209.05433). Each tensor is rescaled at every use so that
its largest element is the format's largest: torchao's "tensorwise, dynamic" recipe. Sums are fp32, results bf16.
With `compile`, scaling and transposing add a few kernels to each product; without it, many.
"""

import torch
from torch import nn

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2


def scaled(tensor, dtype):
    """A tensor in 8 bits, and the fp32 scalar that its elements must be multiplied by to restore them."""
    limit = torch.finfo(dtype).max
    scale = limit / tensor.abs().amax().float().clamp(min=1e-12)
    return (tensor.float() * scale).clamp(-limit, limit).to(dtype), scale.reciprocal()


def product(left, right, *, fast):
    """(m, k) by (n, k), each with its scale, summed over k: (m, n) in bf16. `fast` sums in tensor-core registers only, with less precision."""
    (a, a_scale), (b, b_scale) = left, right
    return torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16, use_fast_accum=fast)  # noqa: SLF001


def transposed(scaled_tensor):
    """The transpose as contiguous rows: 8-bit products need both factors contiguous along the dimension that they sum over."""
    tensor, scale = scaled_tensor
    return tensor.t().contiguous(), scale


class Product(torch.autograd.Function):
    """(rows, in) by weights (out, in), both in bf16: (rows, out) in bf16."""

    @staticmethod
    def forward(ctx, x, weight):  # noqa: ANN205
        x, weight = scaled(x, FORWARD), scaled(weight, FORWARD)
        ctx.save_for_backward(*x, *weight)
        return product(x, weight, fast=True)

    @staticmethod
    def backward(ctx, gradient):  # noqa: ANN205
        x, x_scale, weight, weight_scale = ctx.saved_tensors
        gradient = scaled(gradient.contiguous(), BACKWARD)
        input_gradient = product(gradient, transposed((weight, weight_scale)), fast=False)
        return input_gradient, product(transposed(gradient), transposed((x, x_scale)), fast=False)


class Linear(nn.Linear):
    """Replaces `layer` and shares its weights."""

    def __init__(self, layer):
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x):
        y = Product.apply(x.flatten(0, -2).bfloat16(), self.weight.bfloat16()).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias.bfloat16()


def rebuild(net):
    """Replace all dense layers of a network; parameters and their names stay."""
    for module in list(net.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear:
                setattr(module, name, Linear(layer))
