"""Inside the image: the operations counted for every network are those that PyTorch's own counter sees when it runs.

Prevents a utilisation from operations that a network does not do: a layer that is missed or counted twice, a stride or a group overlooked,
an input gradient that nobody computes; a reference for the other frameworks that is not PyTorch's; a count that draws random
numbers, moves statistics of normalizations, and so changes the run that it belongs to.
"""

import json
import sys
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from flop import per_sample
from models_torch import BUILDERS, build
from with_pytorch.operations import layers

REFERENCE = json.loads((Path(__file__).parents[3] / "golden/flop_per_sample.json").read_text())
BATCH = 2


def counted(net, image_size):
    """What the counter sees of one training step, on a device that knows shapes only."""
    with FlopCounterMode(display=False) as forward:
        output = net(torch.empty(BATCH, 3, image_size, image_size, device="meta"))
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return {"forward": forward.get_total_flops() // BATCH, "backward": backward.get_total_flops() // BATCH}


catalog = json.loads(sys.argv[1])
found = {}
for name, (image_size, _) in catalog.items():
    for size in sorted({32, image_size}):
        with torch.device("meta"):
            net = BUILDERS[name](image_size=size, num_classes=1000)
        ours = per_sample(layers(net, size))
        theirs = found.setdefault(name, {})[str(size)] = counted(net, size)
        for phase in ("forward", "backward"):
            assert abs(ours[phase] / theirs[phase] - 1) < 0.02, (name, size, phase, ours, theirs)
assert found == REFERENCE, f"the reference for the other frameworks differs; this is PyTorch's: {json.dumps(found)}"

# The network that trains afterwards is the one that would have trained without.
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
assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items()), (
    "counting changed the network"
)
assert not any(module._forward_hooks for module in net.modules()), "a hook was left behind"
