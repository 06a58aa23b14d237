"""Inside the image: every network takes every image size that is offered, the edges of the small stem included.

Prevents a map that is pooled away before the last layer, which only a user with that size would see.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_mxnet import BUILDERS
from with_mxnet.shim import mx

for name, builder in BUILDERS.items():
    for image_size in (32, 33, 64, 95, 96, 224, 256, 299):
        output = builder(image_size=image_size, num_classes=10)(mx.sym.var("images"))
        _, (shape,), _ = output.infer_shape(images=(2, 3, image_size, image_size))
        assert shape == (2, 10), f"{name} at {image_size} pixels gives {shape}"
