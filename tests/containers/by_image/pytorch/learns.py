"""Inside the image: a few steps on one batch lower the loss of a network, and every weight gets a gradient.

Prevents a branch that is built and not connected, a weight that gets no gradient, a gradient of the wrong sign.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_torch import build

for name in ("resnet18", "googlenet", "inception-bn"):
    torch.manual_seed(1)
    net = build(name, 32, 10)
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], f"{name}: {losses}"
    untouched = [label for label, p in net.named_parameters() if not p.grad.any()]
    assert not untouched, f"{name}: {untouched} get no gradient"
