"""Inside the image: every network takes every image size that is offered, the edges of the small stem included.

Prevents a map that is pooled away before the last layer, which only a user with that size would see; a size that the definitions'
own arithmetic gets wrong, and with it the count of parameters; a pooling that rounds up where PyTorch's rounds down.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
import caffe
from models_caffe import BUILDERS, extend
from prototxt_caffe import Net
from undrawn import undrawn

# Maps before the classifier at 33 pixels, by hand: AlexNet 33, 16, 7, 3; LeNet 29, 14, 10, 5; VGG 33, 16, 8, 4, 2, 1.
LAST_MAPS = {"alexnet": (256, 3, 3), "lenet": (50, 5, 5), "vgg16": (512, 1, 1), "vgg19": (512, 1, 1)}


def build(text, folder):
    path = Path(folder) / "net.prototxt"
    path.write_text(text)
    return caffe.Net(str(path), caffe.TRAIN)


with tempfile.TemporaryDirectory() as folder:
    for name in BUILDERS:
        for image_size in (32, 33, 64, 95, 96, 224, 256, 299):
            net = Net(name, nvidia=False)
            shapes = f"shape {{ dim: 1 dim: 3 dim: {image_size} dim: {image_size} }} shape {{ dim: 1 }}"
            net.layer("DummyData", [], ["data", "label"], f"dummy_data_param {{ {shapes} }}")
            extend(net, name, image_size, 10)
            built = build(undrawn(net.text()), folder)
            for blob, (channels, size) in net.shapes.items():
                found = built.blobs[blob].data.shape
                # An inner product leaves a vector, global pooling a map of one pixel.
                vector = size == 1 and found == (1, channels)
                assert vector or found == (1, channels, size, size), (name, image_size, blob, found)
            if image_size == 33 and name in LAST_MAPS:
                last = [top for top in net.shapes if top.startswith("pooling")][-1]
                assert built.blobs[last].data.shape[1:] == LAST_MAPS[name], name
            assert built.blobs["loss"].data.shape == ()
