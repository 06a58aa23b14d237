"""What WGAN programs of all frameworks train on, images that depend on a seed and their number alone and latents, and what it costs. NumPy only.

A rank takes its own stretch of every global batch, so that one device with a batch of 2b and two devices with b each see the same images and
the same latents.
"""

import numpy as np

# Draws of latents that stay on the device and come again after these: they are 42 generator updates of 5 critic updates each, and
# nothing has to be drawn or copied between two updates.
DRAWS = 256
# Number of the first image, and of the draw of latents, of the batch on which all ranks compute one loss; no rank trains on them.
SHARED = 1 << 32


def images(seed, *, first, count, image_size):
    """Draw images `first` to `first + count`, (count, 3, image_size, image_size) in fp32: uniform noise between -1 and 1, tanh's range."""
    found = np.empty((count, 3, image_size, image_size), np.float32)
    for row in range(count):
        np.random.default_rng((seed, first + row)).random(dtype=np.float32, out=found[row])
    return 2 * found - 1


def latents(seed, *, draw, first, count, world_batch, size):
    """Standard normal latents `first` to `first + count` of the `world_batch` that all ranks together take in draw number `draw`.

    (count, size) in fp32.
    """
    random = np.random.default_rng((seed, draw, size))
    return random.standard_normal((world_batch, size), np.float32)[first : first + count]


def mixes(seed, *, draw, first, count, world_batch):
    """The same of what a made image is mixed with a real one by, where the critic's gradient is looked at: (count,) in fp32 from 0 to 1."""
    return np.random.default_rng((seed, draw)).random(world_batch, np.float32)[first : first + count]


def own_images(seed, *, rank, world_size, batch, n_critic, image_size):
    """Draw the images of a rank's `n_critic` batches of an iteration, the same in each: (n_critic, batch, 3, size, size)."""
    parts = [
        images(seed, first=(update * world_size + rank) * batch, count=batch, image_size=image_size)
        for update in range(n_critic)
    ]
    return np.stack(parts)


def own_draws(seed, *, rank, world_size, batch, size):
    """Draw a rank's latents, (DRAWS, batch, size), and mixes, (DRAWS, batch), of all draws."""
    share = {"first": rank * batch, "count": batch, "world_batch": world_size * batch}
    drawn = [(latents(seed, draw=draw, size=size, **share), mixes(seed, draw=draw, **share)) for draw in range(DRAWS)]
    return tuple(map(np.stack, zip(*drawn)))  # noqa: B905 - Python 3.8


def flop_per_image(generator, critic, *, n_critic, penalized):
    """Count {"forward", "backward"}; `generator` and `critic` are (weights, positions) of their layers as `flop.per_sample` takes them.

    An update of the critic makes an image, without gradients, and looks at it and at the real one. Backward, the gradients of weights and of
    inputs cost as much as the pass forward each, but nobody needs those of the images. An update of the generator, of which there is one
    for `n_critic` real images, passes gradients of inputs through all of the critic and none of its weights, and none to the latents.
    """
    made, told = ([2 * weights * positions for weights, positions in layers] for layers in (generator, critic))
    forward = sum(made) + 2 * sum(told) + (sum(made) + sum(told)) / n_critic
    backward = 2 * (2 * sum(told) - told[0]) + (sum(told) + 2 * sum(made) - made[0]) / n_critic
    if penalized:
        more_forward, more_backward = penalty(told)
        forward, backward = forward + more_forward, backward + more_backward
    return {"forward": forward, "backward": backward}


def penalty(told):
    """FLOP of a gradient penalty, (forward, backward), of a critic whose last three layers no normalization follows.

    Forward, the critic looks at one image more, and gradients go back through it to that image. Backward, that way is gone once more from the
    image to the last layer, which has the same gradient whatever the weights, and all weights on it are reached; where normalizations made
    it depend on the maps, gradients go the usual way from there to all weights before, and to no image.
    """
    before = sum(told[:-3])
    return 2 * sum(told), 2 * sum(told) - told[-1] + 2 * before - told[0]
