"""How small images change a network's first layers: one rule for all models and all frameworks.

The published networks shrink an image 32-fold, half of it (4-fold) before their first block, which leaves nothing of a 32x32 one.
Below `SMALL_BELOW` pixels the stem keeps its channels and loses that 4-fold: its convolution becomes 3x3 with stride 1, and the
pooling that follows at once is dropped, as He et al. do for CIFAR-10 (https://arxiv.org/abs/1512.03385, section 4.2). VGG has no
such stem: its five poolings leave one position of 32x32, and only its first fully-connected layer becomes smaller. A network whose
name ends with `-imagenet-stem` keeps the published one at every size, as programs do that hand small images to an unchanged network.
"""

# Inception-v3 with its own stem needs 75 pixels, AlexNet 63; the next size that is in use is above both.
SMALL_BELOW = 96


def is_small(image_size):
    """Whether images of this height and width in pixels get the small stem."""
    return image_size < SMALL_BELOW
