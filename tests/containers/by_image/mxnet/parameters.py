"""Inside the image: every network has the number of trainable parameters that the catalog (first argument, JSON) says.

Prevents a layer that is missing, doubled or of another width, which would make a throughput that compares with nothing.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_mxnet import BUILDERS, build
from with_mxnet.shim import mx

catalog = json.loads(sys.argv[1])
assert set(catalog) == set(BUILDERS)
for name, (image_size, expected) in catalog.items():
    parameters = build(name, image_size, 1000, [mx.cpu()]).collect_params().values()
    found = sum(math.prod(p.shape) for p in parameters if p.grad_req != "null")
    assert found == expected, f"{name} has {found} parameters, the catalog says {expected}"
