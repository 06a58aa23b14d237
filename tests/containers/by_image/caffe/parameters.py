"""Inside the image: Caffe builds every network with the number of trainable parameters that the catalog (first argument, JSON) says.

Prevents a layer that is missing, doubled or of another width, which would make a throughput that compares with nothing; a count in
the record that is not what Caffe built.
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
from models_caffe import BUILDERS, extend
from prototxt_caffe import Net
from undrawn import undrawn

STATISTICS = {"BatchNorm": 3, "Bias": 1}  # blobs that are not trained, the first of their layer

catalog = json.loads(sys.argv[1])
assert set(catalog) == set(BUILDERS), set(catalog) ^ set(BUILDERS)
for name, (image_size, expected) in catalog.items():
    net = Net(name, nvidia=False)
    data_caffe.synthetic(net, batch=1, image_size=image_size, num_classes=1000, seed=1)
    extend(net, name, image_size, 1000)
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(undrawn(net.text()))
        file.flush()
        built = caffe.Net(file.name, caffe.TRAIN)
    layers = [list(layer.blobs)[STATISTICS.get(layer.type, 0) :] for layer in built.layers]
    found = sum(blob.data.size for blobs in layers for blob in blobs)
    assert found == expected == net.parameters, f"{name} has {found} parameters, the catalog says {expected}"
    everything = sum(blob.data.size for layer in built.layers for blob in layer.blobs)
    assert everything == net.parameters + net.frozen, f"{name}: {everything} numbers in a snapshot, not {net.frozen}"
