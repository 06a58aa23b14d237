"""Optimizers that PyTorch lacks, with the arithmetic of the TensorFlow programs."""

import torch


class RmsProp(torch.optim.Optimizer):
    """RMSprop as TensorFlow defines it: v = d v + (1 - d) g², m = p m + r g / sqrt(v + e), w -= m, with v = 1 before the first step.

    PyTorch adds e outside the root, and starts with v = 0. `constants` are d, e, and the decay of the moving averages of all weights, which are
    updated in every step although nothing here reads them.
    """

    def __init__(self, parameters, lr=0.1, momentum=0.9, weight_decay=0.0, constants=(0.9, 1.0, 0.9999)):
        rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "constants": constants}
        super().__init__(parameters, rates)
        for weight in (weight for group in self.param_groups for weight in group["params"]):
            self.state[weight] = {
                "square": torch.ones_like(weight),
                "moved": torch.zeros_like(weight),
                "average": weight.detach().clone(),
            }

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weights, (rho, epsilon, averaging) = group["params"], group["constants"]
            squares, moved, averages = (
                [self.state[weight][name] for weight in weights] for name in ("square", "moved", "average")
            )
            gradients = [w.grad.add(w, alpha=group["weight_decay"]) for w in weights]
            torch._foreach_mul_(squares, rho)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - rho)
            roots = [square.add(epsilon).sqrt_() for square in squares]
            torch._foreach_mul_(moved, group["momentum"])
            torch._foreach_addcdiv_(moved, gradients, roots, group["lr"])
            torch._foreach_sub_(weights, moved)
            torch._foreach_lerp_(averages, weights, 1 - averaging)
