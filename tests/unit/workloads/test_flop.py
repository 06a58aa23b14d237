"""Operations of a network, from the shapes of its layers.

Prevents: a factor of two between operations and multiply-adds; ignored strides and groups; an input gradient of the first layer, which
is not computed; a reference (`tests/golden/flop_per_sample.json`, PyTorch's own counter) far from published figures.
"""

import json
from pathlib import Path

import pytest
from flop import per_sample
from hypothesis import given
from hypothesis import strategies as st
from models_caffe import Net, extend

REFERENCE = json.loads((Path(__file__).parents[2] / "golden/flop_per_sample.json").read_text(encoding="utf-8"))

# GFLOPS (multiply-adds, despite the name) in torchvision's tables of weights, pytorch.org/vision/stable/models.html, to two digits.
PUBLISHED_GMAC = {
    "alexnet": 0.71,
    "googlenet": 1.50,
    "inception-v3": 5.71,
    "resnet18": 1.81,
    "resnet50": 4.09,
    "resnet101": 7.80,
    "resnet152": 11.51,
    "vgg16": 15.47,
    "vgg19": 19.63,
    "vit-b16": 17.56,
}


def test_lenet_by_hand():
    """5x5 from 3 to 20 channels on 28x28, 5x5 from 20 to 50 on 10x10, then 1,250 to 500 to 10."""
    layers = [(20 * 3 * 25, 28 * 28), (50 * 20 * 25, 10 * 10), (1250 * 500, 1), (500 * 10, 1)]
    forward = 2 * (1_176_000 + 2_500_000 + 625_000 + 5_000)
    assert per_sample(layers) == {"forward": forward, "backward": 2 * forward - 2 * 1_176_000}


def test_a_stride_divides_the_positions_and_groups_divide_the_weights():
    """3x3 from 64 to 64 channels on 56x56: with stride 2 a quarter of the positions, in 32 groups a 32nd of the weights."""
    stem = (1, 1)
    whole = per_sample([stem, (64 * 64 * 9, 56 * 56)])["forward"] - 2
    strided = per_sample([stem, (64 * 64 * 9, 28 * 28)])["forward"] - 2
    grouped = per_sample([stem, (64 * 2 * 9, 56 * 56)])["forward"] - 2
    assert (whole, strided, grouped) == (231_211_008, whole / 4, whole / 32)


def test_a_single_layer_has_no_input_gradient():
    assert per_sample([(10, 4)]) == {"forward": 80, "backward": 80}


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1, max_size=8))
def test_backward_costs_one_to_two_times_forward(layers):
    found = per_sample(layers)
    assert found["forward"] <= found["backward"] <= 2 * found["forward"]
    doubled = per_sample([*layers, layers[-1]])
    assert doubled["forward"] - found["forward"] == 2 * layers[-1][0] * layers[-1][1]


def test_a_caffe_definition_counts_its_layers():
    """LeNet for 10 classes at 32 pixels, computed by hand above."""
    net = Net("lenet", nvidia=False)
    extend(net, "lenet", 32, 10)
    assert net.multiplied == [(1500, 784), (25000, 100), (625000, 1), (5000, 1)]


@pytest.mark.parametrize("model", sorted(PUBLISHED_GMAC))
def test_the_reference_matches_published_figures(model):
    image_size = max(REFERENCE[model], key=int)
    assert REFERENCE[model][image_size]["forward"] / 2e9 == pytest.approx(PUBLISHED_GMAC[model], abs=0.006)
