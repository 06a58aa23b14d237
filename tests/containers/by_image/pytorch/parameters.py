"""Inside the image: every network has the number of trainable parameters that the catalog (first argument, JSON) says.

Prevents a layer that is missing, doubled or of another width, which would make a throughput that compares with nothing.
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_torch import BUILDERS

catalog = json.loads(sys.argv[1])
assert set(catalog) == set(BUILDERS)
for name, (image_size, expected) in catalog.items():
    with torch.device("meta"):  # shapes without memory
        net = BUILDERS[name](image_size=image_size, num_classes=1000)
    found = sum(p.numel() for p in net.parameters())
    assert found == expected, f"{name} has {found} parameters, the catalog says {expected}"
