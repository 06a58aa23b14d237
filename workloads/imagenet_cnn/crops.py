"""Which part of an image is trained on, where no framework draws it. Standard library, and a generator of NumPy's."""

import math


def random_crop(random, width, height):
    """Draw 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3: left, top, width and height in pixels.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842), as in `data_torch.draw`.
    """
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(random.integers(width - w + 1)), int(random.integers(height - h + 1)), w, h
    return 0, 0, width, height
