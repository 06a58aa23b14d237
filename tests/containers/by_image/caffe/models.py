"""Inside the image: Caffe builds every network with the catalog's parameters, PyTorch's operations and the map sizes of its definition.

Prevents, in addition to `modelled`, counts of parameters, operations or sizes that differ from what Caffe built, so that the record
describes another network; a pooling that rounds up although PyTorch's rounds down.
"""

import re
import tempfile

import caffe
import data_caffe
from modelled import CATALOG, check_operations, check_parameters, counted, sizes
from models_caffe import MODELS, Net, extend

STATISTICS = {"BatchNorm": 3, "Bias": 1}  # untrained blobs, first in their layer
# Maps before the classifier at 33 pixels, by hand: AlexNet 33, 16, 7, 3; LeNet 29, 14, 10, 5; VGG 33, 16, 8, 4, 2, 1.
LAST_MAPS = {"alexnet": (256, 3, 3), "lenet": (50, 5, 5), "vgg16": (512, 1, 1), "vgg19": (512, 1, 1)}


def built(net):
    """Let Caffe build a definition, without fillers, so that all weights are 0: drawing VGG's 138 million takes too long."""
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(re.sub(r"weight_filler \{[^}]*\}", "", net.text()))
        file.flush()
        return caffe.Net(file.name, caffe.TRAIN)


def layers(found):
    """(weights, positions) of each layer as built by Caffe; an output is (1, channels, height, width) or (1, units)."""
    return [
        (layer.blobs[0].data.size, found.blobs[found.top_names[name][0]].data[0, 0].size)
        for name, layer in zip(found._layer_names, found.layers)  # noqa: B905 - Python 3.9
        if layer.type in {"Convolution", "InnerProduct"}
    ]


def check_counts(name, size):
    """Check the counts of a network as the program trains it."""
    net = Net(name, nvidia=False)
    data_caffe.synthetic(net, batch=1, image_size=size, num_classes=1000, seed=1)
    extend(net, name, size, 1000)
    found = built(net)
    assert layers(found) == net.multiplied, (name, size)
    check_operations(name, size, net.multiplied)
    if size == CATALOG[name][0]:
        trained = [blob for layer in found.layers for blob in list(layer.blobs)[STATISTICS.get(layer.type, 0) :]]
        check_parameters(name, sum(blob.data.size for blob in trained))
        check_parameters(name, net.parameters)
        everything = sum(blob.data.size for layer in found.layers for blob in layer.blobs)
        assert everything == net.parameters + net.frozen, f"{name}: {everything} numbers in a snapshot"


def check_shapes(name, size):
    net = Net(name, nvidia=False)
    shapes = f"shape {{ dim: 1 dim: 3 dim: {size} dim: {size} }} shape {{ dim: 1 }}"
    net.layer("DummyData", [], ["data", "label"], f"dummy_data_param {{ {shapes} }}")
    extend(net, name, size, 10)
    found = built(net)
    for blob, (channels, height) in net.shapes.items():
        shape = found.blobs[blob].data.shape
        # An inner product outputs a vector, global pooling a map of one pixel.
        vector = height == 1 and shape == (1, channels)
        assert vector or shape == (1, channels, height, height), (name, size, blob, shape)
    if size == 33 and name in LAST_MAPS:
        last = [top for top in net.shapes if top.startswith("pooling")][-1]
        assert found.blobs[last].data.shape[1:] == LAST_MAPS[name], name
    assert found.blobs["loss"].data.shape == ()


assert set(CATALOG) == set(MODELS), set(CATALOG) ^ set(MODELS)
for name in CATALOG:
    for size in counted(name):
        check_counts(name, size)
    for size in sizes(name):
        check_shapes(name, size)
