"""Inside the image: a network whose layers were changed for speed computes the same as before.

Prevents a faster but different network: blocks cut at the wrong pixel, zeros on the wrong side of a kernel, an output one
pixel short, copied weights that are never updated, renamed or recounted parameters, a normalization that is removed but not folded.
"""

import torch
from models_torch import build
from with_pytorch.operations import layers
from with_pytorch.stems import Blocked
from with_pytorch.techniques import folded, rebuilt

# Kernel, stride, padding, pixels: the first layers of ResNet, AlexNet and Inception-v3, and sizes with a remainder at the edge.
LAYERS = ((7, 2, 3, 224), (7, 2, 3, 97), (11, 4, 2, 224), (11, 4, 2, 227), (3, 2, 0, 299), (3, 2, 0, 64), (5, 3, 1, 50))


def alike(one, other):
    return torch.allclose(one, other, rtol=1e-9, atol=1e-9)


torch.manual_seed(1)
for kernel, stride, padding, pixels in LAYERS:
    plain = torch.nn.Conv2d(3, 8, kernel, stride, padding, bias=kernel == 11).double()
    blocked = Blocked(plain)
    images = torch.randn(2, 3, pixels, pixels + 1, dtype=torch.double)
    expected, found = plain(images), blocked(images)
    assert found.shape == expected.shape, (kernel, stride, padding, pixels)
    assert alike(found, expected), (kernel, stride, padding, pixels)
    gradients = [torch.autograd.grad(output.square().sum(), plain.weight)[0] for output in (expected, found)]
    assert alike(*gradients), (kernel, stride, padding, pixels)

for model, size in (("alexnet", 224), ("resnet18", 224), ("inception-v3", 299), ("resnet18", 32)):
    torch.manual_seed(1)
    plain = build(model, size, 10).double().eval()
    torch.manual_seed(1)
    faster = build(model, size, 10).eval()
    names, counted = [name for name, _ in faster.named_parameters()], layers(faster, size)
    drawn = torch.get_rng_state()
    rebuilt(faster, ("space-to-depth",))
    assert torch.equal(torch.get_rng_state(), drawn), model
    assert any(isinstance(layer, Blocked) for layer in faster.modules()) == (size != 32), model
    assert [name for name, _ in faster.named_parameters()] == names, model
    assert layers(faster, size) == counted, model
    images = torch.randn(2, 3, size, size, dtype=torch.double)
    with torch.no_grad():
        assert alike(faster.double()(images), plain(images)), model

# Batch normalizations of ResNet-18, Inception-v3 (Szegedy et al., table 1; one per convolution) and AlexNet.
for model, size, norms in (("resnet18", 64, 20), ("inception-v3", 96, 94), ("alexnet", 64, 0)):
    net = build(model, size, 10, auxiliary=False).double()
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.running_mean, -1, 1)
            torch.nn.init.uniform_(layer.running_var, 0.5, 2)
    made, effects = folded(torch, net.eval())
    assert effects == ({"folded-norm": norms} if norms else {}), (model, effects)
    images = torch.randn(2, 3, size, size, dtype=torch.double)
    with torch.no_grad():
        expected, found = net(images), made(images)
        assert (found - expected).norm() <= 1e-9 * expected.norm(), model
