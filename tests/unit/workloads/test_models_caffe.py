"""Prevents: networks that differ in size from those of other frameworks, a map that Caffe rounds differently than the definitions
assume, labels or a batch of the wrong size, syntax or calls that Python 3.6, which NVCaffe's image has, lacks."""

import ast
import re
from pathlib import Path

import data_caffe
import models_caffe
import networks
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from models_caffe import Net, pooled

WORKLOADS = Path(__file__).parents[3] / "workloads"
PROGRAMS = sorted(
    [
        *(WORKLOADS / f"{name}.py" for name in ("arguments", "class_folders", "events", "process")),
        *(
            WORKLOADS / f"imagenet_cnn/{name}.py"
            for name in ("classifier", "flags", "networks", "pack_lmdb", "packing")
        ),
        *(WORKLOADS / "imagenet_cnn").glob("*_caffe.py"),
    ]
)
# Torchvision's counts; of bvlc_googlenet.caffemodel, whose main network is that of MXNet's symbol; LeNet's by hand: 20 x 76, 50 x 501, 500 x 1251, 1000 x 501.
PARAMETERS = {
    "alexnet": 61100840,
    "googlenet": 6624904,
    "googlenet-bvlc": 13378280,
    "googlenet-mxnet": 6998552,
    "lenet": 1520 + 25050 + 625500 + 501000,
    "resnet18": 11689512,
    "resnet50": 25557032,
    "resnet101": 44549160,
    "resnet152": 60192808,
    "vgg16": 138357544,
    "vgg19": 143667240,
}


def build(name, image_size, num_classes=1000, *, nvidia=False, half=False):
    net = Net(name, nvidia=nvidia, half=half)
    models_caffe.extend(net, name, image_size, num_classes)
    return net


def layers(text):
    """Blocks of a definition, each without its first and last line."""
    return re.findall(r"^layer \{\n(.*?)^\}$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("nvidia", [False, True])
@pytest.mark.parametrize("name", models_caffe.MODELS)
def test_networks_have_the_published_numbers_of_parameters_in_both_caffes(name, nvidia):
    assert build(name, 32 if name == "lenet" else 224, nvidia=nvidia).parameters == PARAMETERS[name]


@pytest.mark.parametrize(("size", "small"), [(32, True), (64, True), (95, True), (96, False), (224, False)])
def test_small_images_get_the_small_stem(size, small):
    _, channels, kernel, stride, *_ = networks.layers("resnet50", size, 10)[0]
    assert (channels, kernel, stride) == ((64, 3, 1) if small else (64, 7, 2))
    assert networks.layers("resnet50-imagenet-stem", size, 10) == networks.layers("resnet50", 224, 10)


def test_the_smaller_stem_changes_the_first_convolution_only():
    # 64 channels of 3x3x3 instead of 7x7x3: 64 x 3 x (49 - 9) = 7680 weights fewer.
    assert build("resnet18", 224).parameters - build("resnet18", 32).parameters == 7680
    assert build("resnet18", 96).parameters == PARAMETERS["resnet18"]
    assert build("resnet18", 95).parameters == PARAMETERS["resnet18"] - 7680


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("alexnet", [55, 27, 27, 13, 13, 13, 13, 6]),
        ("lenet", [220, 110, 106, 53]),
        ("vgg16", [224, 224, 112, 112, 112, 56, 56, 56, 56, 28, 28, 28, 28, 14, 14, 14, 14, 7]),
    ],
)
def test_maps_at_224_pixels_are_those_of_the_papers(name, sizes):
    """In the order of the layers; a last map that is one larger changes the number of weights of the layer after it."""
    for nvidia in (False, True):
        shapes = build(name, 224, nvidia=nvidia).shapes
        found = [size for blob, (_, size) in shapes.items() if blob.startswith(("convolution", "pooling"))]
        assert found == sizes


@pytest.mark.parametrize("image_size", [96, 97, 160, 224, 255, 299])
def test_resnets_have_the_same_maps_in_both_caffes(image_size):
    """NVCaffe rounds up: with PyTorch's padding an even map would become one larger."""
    assert build("resnet50", image_size).shapes == build("resnet50", image_size, nvidia=True).shapes


def test_caffe_rounds_like_pytorch_and_nvcaffe_rounds_up():
    # AlexNet at 32 pixels: 32, then 15, 7, 3 in PyTorch, and 16, 8, 4 rounded up.
    assert build("alexnet", 32).shapes["pooling3"] == (256, 3)
    assert build("alexnet", 32, nvidia=True).shapes["pooling3"] == (256, 4)
    assert "round_mode" not in build("alexnet", 32, nvidia=True).text()


@given(
    size=st.integers(1, 60),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    up=st.booleans(),
)
def test_pooled_maps_have_as_many_rows_as_windows_fit(size, kernel, stride, padding, up):
    assume(padding < kernel <= size)
    starts = range(-padding, size, stride)
    if up:
        # One more window if rows are left over; with padding, none that begins beyond the map.
        fit = [start for start in starts if start - stride + kernel < size + padding]
        if not padding:
            fit = [-padding + stride * n for n in range(1 + -(-(size - kernel) // stride))]
    else:
        fit = [start for start in starts if start + kernel <= size + padding]
    assert pooled(size, kernel, stride, padding, up=up) == len(fit)


def test_every_blob_is_written_before_it_is_read_and_is_read():
    for name in models_caffe.MODELS:
        made, unread = {"data", "label"}, {"data", "label"}
        for layer in layers(build(name, 224).text()):
            bottoms, tops = (re.findall(rf'^  {end}: "(\w+)"', layer, flags=re.MULTILINE) for end in ("bottom", "top"))
            assert set(bottoms) <= made, layer
            unread = (unread - set(bottoms)) | set(tops)
            made |= set(tops)
        assert unread == {"loss", *(f"softmaxwithloss{number}" for number in (2, 3) if name == "googlenet-bvlc")}


def test_residual_blocks_start_as_identities():
    """The scale of the last normalization of each of the 16 blocks is zero, and no other."""
    for nvidia, kind in ((False, "Scale"), (True, "BatchNorm")):
        scales = [layer for layer in layers(build("resnet50", 224, nvidia=nvidia).text()) if f'type: "{kind}"' in layer]
        assert len(scales) == 53
        assert sum("value: 0 " in layer for layer in scales) == 16
        assert sum("value: 1 " in layer for layer in scales) == 53 - 16


def test_half_precision_applies_to_the_whole_net():
    assert "FLOAT16" not in build("resnet18", 224, nvidia=True).text()
    head, _, _ = build("resnet18", 224, nvidia=True, half=True).text().partition("layer {")
    assert head.splitlines()[1:] == [
        "default_forward_type: FLOAT16",
        "default_backward_type: FLOAT16",
        "global_grad_scale: 1000",
    ]


@given(batch=st.integers(1, 70), num_classes=st.integers(2, 5000), seed=st.integers(0, 9))
def test_synthetic_labels_fill_the_batch_with_classes(batch, num_classes, seed):
    net = Net("labels", nvidia=False)
    data_caffe.synthetic(net, batch=batch, image_size=32, num_classes=num_classes, seed=seed)
    zeros, noise, constants, join = layers(net.text())
    assert f"dim: {batch} dim: 3 dim: 32 dim: 32" in zeros
    assert "lr_mult: 0 decay_mult: 0" in noise
    sizes = [int(size) for size in re.findall(r"shape \{ dim: (\d+) \}", constants)]
    labels = [int(label) for label in re.findall(r"value: (\d+)", constants)]
    assert sum(sizes) == batch
    assert min(sizes) > 0
    assert len(sizes) == len(labels) == constants.count("top: ") == join.count("bottom: ")
    assert all(label < num_classes and label < 2048 for label in labels)
    assert net.frozen == batch * 3 * 32 * 32
    assert net.parameters == 0


@pytest.mark.parametrize(("nvidia", "expected"), [(False, 16), (True, 64)])
def test_a_data_sets_batch_size_follows_each_caffes_definition(nvidia, expected, tmp_path):
    """Caffe 1.0's batch size is per device, NVCaffe's is for all."""
    net = Net("data", nvidia=nvidia)
    data_caffe.lmdb(net, tmp_path / "a b.lmdb", batch=16, devices=4, image_size=224)
    assert f"batch_size: {expected} " in net.text()
    assert f'source: "{tmp_path}/a b.lmdb"' in net.text()
    assert "mean_value: 103.53 mean_value: 116.28 mean_value: 123.675 scale: 0.017352" in net.text()


@pytest.mark.parametrize(("image_size", "expected"), [(224, 256), (32, 37), (299, 342), (7, 8), (8, 10)])
def test_images_are_packed_an_eighth_larger_than_they_are_cropped(image_size, expected):
    assert data_caffe.packed_size(image_size) == expected


# Programs that feed samples to Caffe through its Python interface, which needs NumPy and Pillow.
OF_PYCAFFE = {"folders_caffe.py", "infer_caffe.py"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_are_python_3_6(path):
    """Checks syntax with the parser, and names of calls and keywords that these files once used."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not names & {"prod", "removeprefix", "removesuffix", "cache", "pairwise", "is_relative_to", "with_stem"}
    keywords = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    assert not keywords & {"capture_output", "text", "missing_ok", "dirs_exist_ok", "strict"}
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not modules & {"__future__", "dataclasses", "importlib.resources"}
    assert path.name in OF_PYCAFFE or not modules & {"numpy", "caffe", "PIL"}
