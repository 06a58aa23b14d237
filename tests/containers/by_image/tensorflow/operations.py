"""Inside the image: the operations counted for every network are those of PyTorch's counter.

Prevents frameworks that are held against each other by another count of operations, and so by another utilisation.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from flop import per_sample
from models_tensorflow import build
from with_tensorflow.operations import layers
from with_tensorflow.shim import set_precision, tf

REFERENCE = json.loads((Path(__file__).parents[3] / "golden/flop_per_sample.json").read_text())

catalog = json.loads(sys.argv[1])
for name, (image_size, _) in catalog.items():
    for size in sorted({32, image_size}):
        with tf.Graph().as_default():  # shapes without arithmetic
            ours = per_sample(layers(build(name, size, 1000)))
        theirs = REFERENCE[name][str(size)]
        for phase in ("forward", "backward"):
            assert abs(ours[phase] / theirs[phase] - 1) < 0.02, (name, size, phase, ours, theirs)

set_precision("bf16")
assert per_sample(layers(build("lenet", 32, 1000)))["forward"] == REFERENCE["lenet"]["32"]["forward"]
