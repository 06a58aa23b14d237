"""Inside the image: every network is the catalog's, costs what PyTorch's own counter sees when it runs, and learns.

Prevents, beside what `modelled` does, a reference for the other frameworks that is not PyTorch's, a count that draws random numbers, moves
statistics of normalizations, and so changes the run that it belongs to; a branch that is built and not connected, a weight that gets no
gradient, a gradient of the wrong sign.
"""

import json

import torch
from modelled import CATALOG, REFERENCE, counted, hold_learning, hold_operations, hold_parameters, sizes
from models_torch import build, undrawn
from networks import MODELS
from torch.utils.flop_counter import FlopCounterMode
from with_pytorch.operations import layers

BATCH = 2


def on_meta(name, size, num_classes=1000):
    """A network that knows shapes only."""
    with torch.device("meta"):
        return undrawn(name, size, num_classes)


def run(net, size):
    """What PyTorch counts of one training step."""
    with FlopCounterMode(display=False) as forward:
        output = net(torch.empty(BATCH, 3, size, size, device="meta"))
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return {"forward": forward.get_total_flops() // BATCH, "backward": backward.get_total_flops() // BATCH}


def counting_leaves_no_trace():
    """The network that trains afterwards is the one that would have trained without."""
    torch.manual_seed(1)
    net = build("alexnet", 32, 10)  # has dropout
    layers(net, 32)
    after = torch.rand(4)
    torch.manual_seed(1)
    build("alexnet", 32, 10)
    assert torch.equal(after, torch.rand(4)), "counting drew random numbers"
    net = build("resnet18", 32, 10)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    layers(net, 32)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items()), "counting moved numbers"
    assert not any(module._forward_hooks for module in net.modules()), "a hook was left behind"


def six_steps_lower_the_loss(name):
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
    hold_learning(name, losses, [label for label, p in net.named_parameters() if not p.grad.any()])


assert set(CATALOG) == set(MODELS)
seen = {}
for name, (image_size, _) in CATALOG.items():
    hold_parameters(name, sum(p.numel() for p in on_meta(name, image_size).parameters()))
    for size in {*sizes(name), 95, 96}:  # and at the edges of the small stem
        shape = on_meta(name, size, 10)(torch.empty(2, 3, size, size, device="meta")).shape
        assert shape == (2, 10), f"{name} at {size} pixels gives {tuple(shape)}"
    for size in counted(name):
        net = on_meta(name, size)
        seen.setdefault(name, {})[str(size)] = run(net, size)
        hold_operations(name, size, layers(net, size))
assert seen == REFERENCE, f"the reference for the other frameworks differs; this is PyTorch's: {json.dumps(seen)}"
counting_leaves_no_trace()
for name in ("resnet18", "inception-bn"):
    six_steps_lower_the_loss(name)
