"""Inside the image: every network has the number of trainable parameters that the catalog (first argument, JSON) says.

Prevents a layer that is missing, doubled or of another width, which would make a throughput that compares with nothing.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_tensorflow import BUILDERS, build
from with_tensorflow.shim import tf

catalog = json.loads(sys.argv[1])
assert set(catalog) == set(BUILDERS)
for name, (image_size, expected) in catalog.items():
    with tf.Graph().as_default():  # shapes without arithmetic
        found = sum(math.prod(weight.shape) for weight in build(name, image_size, 1000).trainable_variables)
    assert found == expected, f"{name} has {found} parameters, the catalog says {expected}"
