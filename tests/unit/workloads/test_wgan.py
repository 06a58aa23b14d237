"""The data that a WGAN trains on, and its cost.

Prevents: ranks that train on each other's images or latents, one device with 2b that sees other samples than two devices with b, images
outside the generator's range, updates of one iteration with the same images, a cost that includes gradients that are not computed.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wgan import synthetic

BATCH = {"n_critic": 2, "image_size": 4}


@given(seed=st.integers(0, 2**32), batch=st.integers(1, 4), world=st.integers(1, 3))
def test_the_ranks_images_together_are_those_of_one_device(seed, batch, world):
    alone = synthetic.own_images(seed, rank=0, world_size=1, batch=batch * world, **BATCH)
    parts = [synthetic.own_images(seed, rank=rank, world_size=world, batch=batch, **BATCH) for rank in range(world)]
    assert np.array_equal(np.concatenate(parts, axis=1), alone)


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 4), world=st.integers(1, 3))
def test_the_ranks_latents_together_are_those_of_one_device(seed, batch, world):
    alone = synthetic.own_draws(seed, rank=0, world_size=1, batch=batch * world, size=100)
    parts = [synthetic.own_draws(seed, rank=rank, world_size=world, batch=batch, size=100) for rank in range(world)]
    for together, own in zip(alone, zip(*parts, strict=True), strict=True):
        assert np.array_equal(np.concatenate(own, axis=1), together)


def test_images_have_the_range_of_tanh_and_differ_between_updates():
    images = synthetic.own_images(1, rank=0, world_size=1, batch=8, n_critic=5, image_size=16)
    assert (images.shape, images.dtype) == ((5, 8, 3, 16, 16), np.float32)
    assert -1 <= images.min() < -0.99
    assert 0.99 < images.max() < 1
    assert len({image.tobytes() for image in images.reshape(40, -1)}) == 40


def test_latents_are_standard_normal_and_differ_between_draws():
    latents, mixes = synthetic.own_draws(1, rank=0, world_size=1, batch=8, size=100)
    assert (latents.shape, latents.dtype) == ((256, 8, 100), np.float32)
    # 204,800 numbers: five standard errors of mean and standard deviation.
    assert abs(latents.mean()) < 5 / 204_800**0.5
    assert abs(latents.std() - 1) < 5 / (2 * 204_800) ** 0.5
    assert len({latent.tobytes() for latent in latents.reshape(2048, -1)}) == 2048
    # 2,048 uniform numbers with standard deviation 1 / √12: five standard errors of the mean.
    assert (mixes.shape, mixes.dtype) == ((256, 8), np.float32)
    assert abs(mixes.mean() - 0.5) < 5 / (12 * 2048) ** 0.5
    assert 0 <= mixes.min() < 0.01
    assert 0.99 < mixes.max() < 1


def test_the_shared_batch_is_not_trained_on():
    trained = synthetic.own_draws(1, rank=0, world_size=1, batch=4, size=100)[0].reshape(-1, 100)
    shared = synthetic.latents(1, draw=synthetic.SHARED, first=0, count=4, world_batch=4, size=100)
    assert not {row.tobytes() for row in shared} & {row.tobytes() for row in trained}


def test_the_cost_of_a_real_image_by_hand():
    """A generator with layers of 10 and 20 FLOP, a critic with 6 and 4, two critic updates per iteration.

    Forward, a real image costs one generated image, 30, and two critic passes, 20; plus half of the generator's update, 30 + 10.
    Backward, each critic pass costs weights and inputs of both layers except the inputs of the first, 2 x 10 - 6; plus half of the critic's
    inputs, 10, and of the generator's weights and inputs except the latents', 2 x 30 - 10.
    """
    found = synthetic.flop_per_image([(5, 1), (2, 5)], [(3, 1), (1, 2)], n_critic=2, penalized=False)
    assert found == {"forward": 30 + 20 + 40 / 2, "backward": 2 * 14 + 60 / 2}


@given(n_critic=st.integers(1, 10))
def test_more_critic_updates_mean_less_generator_cost_per_image(n_critic):
    layers = [(7, 3), (5, 2)]
    few, more = (
        synthetic.flop_per_image(layers, layers, n_critic=count, penalized=False) for count in (n_critic, n_critic + 1)
    )
    assert few["forward"] > more["forward"]
    assert few["backward"] > more["backward"]
    # The sum over an iteration grows by exactly one critic update: 2 x 31 generated, 4 x 31 critic passes.
    assert (n_critic + 1) * more["forward"] - n_critic * few["forward"] == pytest.approx(6 * 31)
