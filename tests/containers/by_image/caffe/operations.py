"""Inside the image: the operations counted for every network are those of the layers that Caffe builds, and of PyTorch's counter.

Prevents frameworks that are held against each other by another count of operations, and so by another utilisation; a count from
definitions that Caffe reads otherwise.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
import caffe
import data_caffe
from flop import per_sample
from models_caffe import BUILDERS, extend
from prototxt_caffe import Net
from undrawn import undrawn

REFERENCE = json.loads((Path(__file__).parents[3] / "golden/flop_per_sample.json").read_text())
MULTIPLIES = {"Convolution", "InnerProduct"}


def layers(built):
    """(weights, positions) of each layer as Caffe built it; an output is (1, channels, height, width) or (1, units)."""
    found = []
    for name, layer in zip(built._layer_names, built.layers):  # noqa: B905 - Python 3.9
        if layer.type in MULTIPLIES:
            (top,) = built.top_names[name]
            found.append((layer.blobs[0].data.size, built.blobs[top].data[0, 0].size))
    return found


catalog = json.loads(sys.argv[1])
assert set(catalog) == set(BUILDERS)
for name, (image_size, _) in catalog.items():
    for size in sorted({32, image_size}):
        net = Net(name, nvidia=False)
        data_caffe.synthetic(net, batch=1, image_size=size, num_classes=1000, seed=1)
        extend(net, name, size, 1000)
        with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
            file.write(undrawn(net.text()))
            file.flush()
            assert layers(caffe.Net(file.name, caffe.TRAIN)) == net.multiplied, (name, size)
        ours, theirs = per_sample(net.multiplied), REFERENCE[name][str(size)]
        for phase in ("forward", "backward"):
            assert abs(ours[phase] / theirs[phase] - 1) < 0.02, (name, size, phase, ours, theirs)
