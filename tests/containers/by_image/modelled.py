"""What all frameworks' networks are held to: the parameters of the catalog (first argument, JSON) and the operations of PyTorch's counter, at
image sizes that leave a rest in some layer and ones that leave none. No script by itself.

Prevents a layer that is missing, doubled or of another width, which would make a throughput that compares with nothing; a map that is pooled
away before the last layer, which only a user with that size would see; frameworks that are held against each other by another count of
operations, and so by another utilisation.
"""

import json
import sys
from pathlib import Path

from flop import per_sample

CATALOG = json.loads(sys.argv[1])
# Deeper ones of a family: more layers that leave the map as it is.
DEEPER = {"resnet101", "resnet152", "resnet152-imagenet-stem", "vgg19"}
# {network: {size: {"forward", "backward"}}} of a sample.
REFERENCE = json.loads((Path(__file__).parents[2] / "golden/flop_per_sample.json").read_text())


def counted(name):
    """The sizes at which operations are counted."""
    return sorted({32, CATALOG[name][0]})


def sizes(name):
    """The sizes at which shapes are looked at."""
    return counted(name) if name in DEEPER else sorted({32, 33, 224, 299, CATALOG[name][0]})


def hold_parameters(name, found):
    assert found == CATALOG[name][1], f"{name} has {found} parameters, the catalog says {CATALOG[name][1]}"


def hold_operations(name, size, layers, *, saved=0):
    """Hold (weights, positions) of layers to PyTorch's operations, or to those less what a network is known to save forward."""
    ours, theirs = per_sample(layers), REFERENCE[name][str(size)]
    for phase, passes in (("forward", 1), ("backward", 2)):
        assert abs(ours[phase] / (theirs[phase] - passes * saved) - 1) < 0.02, (name, size, phase, ours, theirs)


def hold_learning(name, losses, untouched):
    """Hold a network to what six steps on one batch have to do: lower its loss, and give every weight a gradient."""
    assert len(losses) == 6
    assert losses[-1] < 0.8 * losses[0], f"{name}: {losses}"
    assert not untouched, f"{name}: {untouched} get no gradient"
