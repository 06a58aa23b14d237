"""Checks of all frameworks' networks: parameters as in the catalog (first argument, JSON) and operations as counted by PyTorch, at
image sizes with and without a remainder in some layer. A library, not a script.

Prevents a layer that is missing, duplicated or of another width, whose throughput would be comparable with nothing; a map that is pooled
away before the last layer, which only users of that size would notice; and frameworks with different operation counts, hence
incomparable utilisation.
"""

import json
import sys
from pathlib import Path

import numpy as np
from flop import per_sample

CATALOG = json.loads(sys.argv[1])
# Deeper variants of a family, whose extra layers do not change the map; checked only at their own size.
DEEPER = {"inception-v3-aux", "resnet101", "resnet152", "resnet152-imagenet-stem", "vgg19", "vit-b16"}
# Half of the loss comes from classifiers that drop 0.7 of their units: six steps prove nothing.
UNSTEADY = {"googlenet-bvlc"}
# {network: {size: {"forward", "backward"}}} per sample.
REFERENCE = json.loads((Path(__file__).parents[2] / "golden/flop_per_sample.json").read_text())


def check_local_norm(normalize):
    """Check local response normalization of maps (batch, channels, height, width) against its formula, with pixels large enough to matter."""
    x = 100 * np.random.default_rng(1).standard_normal((2, 7, 3, 4), np.float32)
    squares = np.pad(x**2, [(0, 0), (2, 2), (0, 0), (0, 0)])
    mean = sum(squares[:, shift : shift + 7] for shift in range(5)) / 5
    np.testing.assert_allclose(normalize(x), x / (1 + 1e-4 * mean) ** 0.75, rtol=1e-4)


def check_rmsprop(step):
    """Check two steps of RMSprop, with rate 0.1, momentum 0.9 and weight decay 0.5, by formula; `step(gradient)` returns (weight, average).

    The first gradient is 1.5 + 0.5 x 1 = 2, and the mean of squares 0.9 x 1 + 0.1 x 4 = 1.3.
    """
    moved = 0.1 * 2 / (1.3 + 1) ** 0.5
    weight, average = 1 - moved, 1 - 1e-4 * moved
    np.testing.assert_allclose(step(1.5), (weight, average), rtol=1e-6)
    gradient = 1 + 0.5 * weight
    moved = 0.9 * moved + 0.1 * gradient / (0.9 * 1.3 + 0.1 * gradient**2 + 1) ** 0.5
    np.testing.assert_allclose(step(1.0), (weight - moved, average + 1e-4 * (weight - moved - average)), rtol=1e-6)


def counted(name):
    """Sizes at which operations are counted."""
    return sorted({CATALOG[name][0]} | (set() if name in DEEPER else {32}))


def sizes(name):
    """Sizes at which shapes are checked."""
    return counted(name) if name in DEEPER else sorted({32, 33, 299, CATALOG[name][0]})


def check_parameters(name, found):
    assert found == CATALOG[name][1], f"{name} has {found} parameters, the catalog says {CATALOG[name][1]}"


def check_operations(name, size, layers, *, saved=0):
    """Compare (weights, positions) of layers with PyTorch's operations, minus those that a network is known to save in the forward pass."""
    ours, theirs = per_sample(layers), REFERENCE[name][str(size)]
    for phase, passes in (("forward", 1), ("backward", 2)):
        assert abs(ours[phase] / (theirs[phase] - passes * saved) - 1) < 0.02, (name, size, phase, ours, theirs)


def check_learning(name, losses, untouched):
    """Six steps on one batch must lower the loss and give every weight a gradient."""
    assert len(losses) == 6
    assert name in UNSTEADY or losses[-1] < 0.8 * losses[0], f"{name}: {losses}"
    assert not untouched, f"{name}: {untouched} get no gradient"
