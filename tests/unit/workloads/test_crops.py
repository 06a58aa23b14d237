"""Prevents: a crop that reaches beyond its image, that is smaller or flatter than it may be, or another one when it is drawn again."""

import numpy as np
from crops import random_crop
from hypothesis import given
from hypothesis import strategies as st

SIDES = st.integers(1, 5000)


@given(seed=st.integers(0, 2**32), width=SIDES, height=SIDES)
def test_a_crop_lies_within_its_image_and_is_drawn_from_the_seed_alone(seed, width, height):
    left, top, w, h = random_crop(np.random.default_rng(seed), width, height)
    assert 0 <= left <= left + w <= width
    assert 0 <= top <= top + h <= height
    assert w > 0
    assert h > 0
    assert random_crop(np.random.default_rng(seed), width, height) == (left, top, w, h)


@given(seed=st.integers(0, 2**32))
def test_a_crop_has_8_to_100_percent_of_the_area_at_an_aspect_ratio_of_3_to_4(seed):
    """Of 1000 x 1000 pixels, to which sides are rounded; where no draw fits, the whole image is within both bounds."""
    _, _, w, h = random_crop(np.random.default_rng(seed), 1000, 1000)
    assert 0.0795 <= w * h / 1e6 <= 1
    assert 0.745 <= w / h <= 1.34


def test_an_image_too_flat_for_any_crop_is_taken_whole():
    assert random_crop(np.random.default_rng(1), 5000, 1) == (0, 0, 5000, 1)
