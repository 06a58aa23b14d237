"""Inside the image: every network takes every image size that is offered, the edges of the small stem included.

Prevents a map that is pooled away before the last layer, which only a user with that size would see.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_torch import BUILDERS

for name, builder in BUILDERS.items():
    for image_size in (32, 33, 64, 95, 96, 224, 256, 299):
        with torch.device("meta"):  # shapes without arithmetic
            shape = builder(image_size=image_size, num_classes=10)(torch.empty(2, 3, image_size, image_size)).shape
        assert shape == (2, 10), f"{name} at {image_size} pixels gives {tuple(shape)}"
