"""Prevents: ranks that train on each other's samples, a batch of 2b that is not the two batches of b, runs that differ with one seed."""

import numpy as np
import synthetic
from hypothesis import given
from hypothesis import strategies as st

SHAPE = {"image_size": 4, "num_classes": 10}


@given(seed=st.integers(0, 2**32), first=st.integers(0, 100), count=st.integers(1, 6), world=st.integers(1, 4))
def test_the_ranks_parts_together_are_the_global_batch(seed, first, count, world):
    images, labels = synthetic.samples(seed, first=first, count=count * world, **SHAPE)
    parts = [synthetic.samples(seed, first=first + rank * count, count=count, **SHAPE) for rank in range(world)]
    assert np.array_equal(np.concatenate([part[0] for part in parts]), images)
    assert np.array_equal(np.concatenate([part[1] for part in parts]), labels)


def test_shapes_and_types_are_those_that_the_frameworks_need():
    images, labels = synthetic.samples(1, first=0, count=3, **SHAPE)
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((3, 3, 4, 4), np.float32, (3,), np.int64)


def test_samples_differ_from_each_other_and_between_seeds():
    images, _ = synthetic.samples(1, first=0, count=20, **SHAPE)
    assert len({image.tobytes() for image in images}) == 20
    other, _ = synthetic.samples(2, first=0, count=20, **SHAPE)
    assert not {image.tobytes() for image in images} & {image.tobytes() for image in other}


def test_noise_is_standard_normal_and_labels_uniform():
    images, labels = synthetic.samples(1, first=0, count=2000, **SHAPE)
    # 96,000 numbers: five standard errors of mean and standard deviation.
    assert abs(images.mean()) < 5 / 96_000**0.5
    assert abs(images.std() - 1) < 5 / (2 * 96_000) ** 0.5
    # 200 expected of each of ten labels, standard deviation 13.4.
    assert all(abs(count - 200) < 5 * 13.4 for count in np.bincount(labels, minlength=10))
