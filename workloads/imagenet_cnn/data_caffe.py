"""Input layers of the Caffe program, which produce the blobs `data` and `label`. Standard library and syntax of Python 3.6 only.

Synthetic images are standard normal noise: one batch, which stays on the device for all iterations, as in the other programs. Caffe's
DummyData fills a blob just once only if its filler is constant. A gaussian filler draws a new batch every iteration, on the CPU
even when a GPU trains: 43 ms for 64 images of 224x224 pixels on one core (`caffe time`, Caffe 1.0). DummyData therefore makes zeros, and an
untrained Bias layer adds noise that its filler drew once: 17 ms on that core; on a GPU, an addition on data already there.
NVCaffe excludes such a layer from its all-reduce, and copies the first GPU's noise to all. Labels are constants
too: up to eight different ones a batch, concatenated.

Real images are JPEGs of one size in an LMDB from `pack_lmdb`. Caffe's Data layer decodes them, crops them at random and mirrors them in
its own threads. It subtracts a mean per channel, but has one scale for all channels: 1 over the mean of the three deviations.
"""

import json
import random

from models_caffe import FROZEN

# Mean of ImageNet's training images, for pixels from 0 to 255 in OpenCV's order (blue, green, red); and the mean of the channels'
# deviations 57.375, 57.12 and 58.395.
MEANS = (103.53, 116.28, 123.675)
DEVIATION = 57.63
LABELS = 8
LARGEST_HALF = 2048  # half precision represents every integer, such as a label, exactly up to here


def packed_size(image_size):
    """Height and width in pixels of packed images for crops of `image_size`: 256 for 224, as is customary with ImageNet."""
    return -(-image_size * 8 // 7)


def synthetic(net, *, batch, image_size, num_classes, seed):
    shape = f"shape {{ dim: {batch} dim: 3 dim: {image_size} dim: {image_size} }}"
    net.layer("DummyData", [], ["zeros"], f"dummy_data_param {{ {shape} }}")
    noise = 'bias_param { axis: 0 num_axes: -1 filler { type: "gaussian" std: 1 } }'
    net.layer("Bias", ["zeros"], ["data"], f"{FROZEN}\n{noise}")
    net.frozen += batch * 3 * image_size**2

    draw = random.Random(seed)
    groups = min(LABELS, batch)
    tops = [f"label{number}" for number in range(groups)]
    sizes = [batch // groups + (number < batch % groups) for number in range(groups)]
    labels = [draw.randrange(min(num_classes, LARGEST_HALF)) for _ in tops]
    shapes = " ".join(f"shape {{ dim: {size} }}" for size in sizes)
    fillers = " ".join(f'data_filler {{ type: "constant" value: {label} }}' for label in labels)
    net.layer("DummyData", [], tops, f"dummy_data_param {{\n  {shapes}\n  {fillers}\n}}")
    net.layer("Concat", tops, ["label"], "concat_param { axis: 0 }")


def lmdb(net, path, *, batch, devices, image_size):
    """Add the layer that reads an LMDB; `batch` is per device.

    Caffe 1.0 gives each device the batch size in the file; NVCaffe divides it among the devices (`P2PSync::divide_batch_size`).
    """
    batch_size = batch * devices if net.nvidia else batch
    means = " ".join(f"mean_value: {mean}" for mean in MEANS)
    transform = f"transform_param {{ crop_size: {image_size} mirror: true {means} scale: {1 / DEVIATION:.6f} }}"
    source = f"data_param {{ source: {json.dumps(str(path))} backend: LMDB batch_size: {batch_size} }}"
    net.layer("Data", [], ["data", "label"], f"{transform}\n{source}")
