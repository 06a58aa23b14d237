"""Inside the image: every network matches the catalog, has the operations that PyTorch's own counter sees, and learns.

Prevents, in addition to `modelled`, a reference for the other frameworks that is not PyTorch's; a count that draws random numbers or moves
normalization statistics, and so changes the run that it belongs to; a branch that is built but not connected; a weight without a
gradient; a gradient of the wrong sign.
"""

import json

import torch
from modelled import (
    CATALOG,
    DEEPER,
    REFERENCE,
    check_learning,
    check_local_norm,
    check_operations,
    check_parameters,
    check_rmsprop,
    counted,
    sizes,
)
from models_torch import Maker, build, build_uninitialized
from networks import MODELS, TRANSFORMERS
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from with_pytorch.operations import layers
from with_pytorch.optimizers import RmsProp
from with_pytorch.transformers import EncoderBlock

BATCH = 2


def on_meta(name, size, num_classes=1000):
    """A network with shapes but no data."""
    with torch.device("meta"):
        return build_uninitialized(name, size, num_classes)


def all_scores(told):
    """Scores of the network and of its auxiliary classifiers."""
    return told if isinstance(told, tuple) else (told,)


def run(net, size):
    """PyTorch's operation count of one training step."""
    with sdpa_kernel(SDPBackend.MATH):  # others recompute products in their backward pass, and count them
        with FlopCounterMode(display=False) as forward:
            scores = all_scores(net(torch.empty(BATCH, 3, size, size, device="meta")))
        with FlopCounterMode(display=False) as backward:
            sum(output.sum() for output in scores).backward()
    return {"forward": forward.get_total_flops() // BATCH, "backward": backward.get_total_flops() // BATCH}


def counting_leaves_no_trace():
    """Counting does not change the network that is trained afterwards."""
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
    if name in TRANSFORMERS:
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = sum(torch.nn.functional.cross_entropy(scores, labels) for scores in all_scores(net(images)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    check_learning(name, losses, [label for label, p in net.named_parameters() if not p.grad.any()])


def blocks_match_pytorchs():
    """Outputs and gradients equal those of PyTorch's encoder layer with the same weights under other names."""
    for after in (False, True):
        torch.manual_seed(1)
        block = EncoderBlock(48, 3, 96, epsilon=1e-6, after=after).double()
        shape = {"dropout": 0.0, "activation": "gelu", "layer_norm_eps": 1e-6, "batch_first": True}
        own = torch.nn.TransformerEncoderLayer(48, 3, 96, norm_first=not after, **shape).double()
        attention, first, last = own.self_attn, block.mlp[0], block.mlp[2]
        pairs = [
            (attention.in_proj_weight, block.attention.qkv.weight),
            (attention.in_proj_bias, block.attention.qkv.bias),
        ]
        for theirs, ours in (
            *((attention.out_proj, block.attention.out), (own.linear1, first), (own.linear2, last)),
            *((own.norm1, block.norm1), (own.norm2, block.norm2)),
        ):
            pairs += [(theirs.weight, ours.weight), (theirs.bias, ours.bias)]
        with torch.no_grad():
            for theirs, ours in pairs:
                theirs.copy_(ours)
        x = torch.randn(2, 7, 48, dtype=torch.float64)
        outputs = [layer(x) for layer in (own, block)]
        assert torch.allclose(*outputs, atol=1e-12), after
        for output in outputs:
            output.square().sum().backward()
        assert all(torch.allclose(theirs.grad, ours.grad, atol=1e-10) for theirs, ours in pairs), after


def rmsprop_matches_tensorflows():
    weight = torch.nn.Parameter(torch.ones(1))
    update = RmsProp([weight], lr=0.1, momentum=0.9, weight_decay=0.5)

    def step(gradient):
        weight.grad = torch.full((1,), gradient)
        update.step()
        return weight.item(), update.state[weight]["average"].item()

    check_rmsprop(step)


assert set(CATALOG) == set(MODELS)
seen = {}
for name, (image_size, _) in CATALOG.items():
    check_parameters(name, sum(p.numel() for p in on_meta(name, image_size).parameters()))
    for size in {*sizes(name), *(() if name in DEEPER else (95, 96))}:  # and around the limit of the small stem
        told = all_scores(on_meta(name, size, 10)(torch.empty(2, 3, size, size, device="meta")))
        assert {tuple(scores.shape) for scores in told} == {(2, 10)}, f"{name} at {size} pixels gives {told}"
    for size in counted(name):
        net = on_meta(name, size)
        seen.setdefault(name, {})[str(size)] = run(net, size)
        check_operations(name, size, layers(net, size))
assert seen == REFERENCE, f"the reference for the other frameworks differs; this is PyTorch's: {json.dumps(seen)}"
counting_leaves_no_trace()
check_local_norm(lambda x: Maker(7, 3).local_norm()(torch.from_numpy(x)).numpy())
rmsprop_matches_tensorflows()
blocks_match_pytorchs()
for name in ("resnet18", "inception-bn", "googlenet-bvlc", "vit-ti16"):
    six_steps_lower_the_loss(name)
