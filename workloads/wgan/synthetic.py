"""Input of WGAN programs in all frameworks, images and latents drawn from a seed, and the operations per image. NumPy only.

Image number i depends only on the seed and i. Each rank takes its own stretch of every global batch, so that one device with a batch of 2b
and two devices with b each see the same images and latents.
"""

import numpy as np

# Draws of latents that stay on the device and repeat: enough for 42 generator updates with 5 critic updates each, so that
# nothing is drawn or copied between two updates.
DRAWS = 256
# First image, and draw of latents, of the batch on which all ranks compute the same loss; no rank trains on them.
SHARED = 1 << 32


def images(seed, *, first, count, image_size):
    """Draw `count` images from number `first`, (count, 3, image_size, image_size) in fp32: uniform noise between -1 and 1, tanh's range."""
    found = np.empty((count, 3, image_size, image_size), np.float32)
    for row in range(count):
        np.random.default_rng((seed, first + row)).random(dtype=np.float32, out=found[row])
    return 2 * found - 1


def latents(seed, *, draw, first, count, world_batch, size):
    """Draw `count` standard normal latents from number `first`, of the `world_batch` latents of all ranks in draw number `draw`.

    (count, size) in fp32.
    """
    random = np.random.default_rng((seed, draw, size))
    return random.standard_normal((world_batch, size), np.float32)[first : first + count]


def mixes(seed, *, draw, first, count, world_batch):
    """Draw the weights of made images in the mixes at which the critic's gradient is penalized, likewise: (count,) in fp32 from 0 to 1."""
    return np.random.default_rng((seed, draw)).random(world_batch, np.float32)[first : first + count]


def own_images(seed, *, rank, world_size, batch, n_critic, image_size):
    """Draw a rank's `n_critic` batches of images, the same in every iteration: (n_critic, batch, 3, size, size)."""
    parts = [
        images(seed, first=(update * world_size + rank) * batch, count=batch, image_size=image_size)
        for update in range(n_critic)
    ]
    return np.stack(parts)


def own_draws(seed, *, rank, world_size, batch, size):
    """Draw a rank's latents, (DRAWS, batch, size), and mixes, (DRAWS, batch), for all draws."""
    share = {"first": rank * batch, "count": batch, "world_batch": world_size * batch}
    drawn = [(latents(seed, draw=draw, size=size, **share), mixes(seed, draw=draw, **share)) for draw in range(DRAWS)]
    return tuple(map(np.stack, zip(*drawn)))  # noqa: B905 - Python 3.8


def flop_per_image(generator, critic, *, n_critic, penalized):
    """Count {"forward", "backward"}; `generator` and `critic` are (weights, positions) of their layers, as for `flop.per_sample`.

    A critic update makes an image, without gradients, and scores it and the real one. In the backward pass, gradients of weights and of
    inputs each cost as much as the forward pass, but the images need none. A generator update, one per `n_critic` real images, propagates
    input gradients through the whole critic, but computes none for the critic's weights or the latents.
    """
    generator, critic = ([2 * weights * positions for weights, positions in layers] for layers in (generator, critic))
    forward = sum(generator) + 2 * sum(critic) + (sum(generator) + sum(critic)) / n_critic
    backward = 2 * (2 * sum(critic) - critic[0]) + (sum(critic) + 2 * sum(generator) - generator[0]) / n_critic
    if penalized:
        more_forward, more_backward = penalty(critic)
        forward, backward = forward + more_forward, backward + more_backward
    return {"forward": forward, "backward": backward}


def penalty(critic):
    """FLOP of a gradient penalty, (forward, backward), from those of a critic's layers; its last three have no normalization after them.

    Forward, the critic scores one more image, and gradients propagate back to that image. Backward, that path is traversed again from the
    image to the last layer, whose gradient does not depend on the weights, and yields the gradients of all weights along it. Since
    normalizations make the path depend on the activations, gradients also propagate from there to all earlier weights, but not to the image.
    """
    before = sum(critic[:-3])
    return 2 * sum(critic), 2 * sum(critic) - critic[-1] + 2 * before - critic[0]
