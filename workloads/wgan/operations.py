"""Floating-point operations of a WGAN for each real image that it reads. Standard library only."""


def per_image(generator, critic, *, n_critic):
    """Count {"forward", "backward"}; `generator` and `critic` are (weights, positions) of their layers as `flop.per_sample` takes them.

    An update of the critic makes an image, without gradients, and looks at it and at the real one. Backward, the gradients of weights and of
    inputs cost as much as the pass forward each, but nobody needs those of the images. An update of the generator, of which there is one
    for `n_critic` real images, passes gradients of inputs through all of the critic and none of its weights, and none to the latents.
    """
    made, told = ([2 * weights * positions for weights, positions in layers] for layers in (generator, critic))
    forward = sum(made) + 2 * sum(told) + (sum(made) + sum(told)) / n_critic
    backward = 2 * (2 * sum(told) - told[0]) + (sum(told) + 2 * sum(made) - made[0]) / n_critic
    return {"forward": forward, "backward": backward}
