"""JPEGs of class folders for `infer_caffe.py`, which Pillow reads in place, for training and inference. Syntax of Python 3.6 only.

Caffe's own layers read a packed file or a list, and crop and normalize differently; a comparison with other frameworks needs the same
images. Threads decode, because Pillow releases Python's lock while it does.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from class_folders import MEAN, STD, central_square, class_folders, random_crop, split
from PIL import Image

UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def normalized(pixels):
    """Convert bytes (batch, 3, height, width) to fp32 with mean 0 and deviation 1 over ImageNet."""
    mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (MEAN, STD))
    return (pixels - mean) / std


class Folders:
    """A folder of class folders, split by `class_folders.split`; `unreadable` holds the names of images that do not decode."""

    def __init__(self, root, *, size, seed, workers):
        self.root, self.size, self.seed = Path(root), size, seed
        self.pool = ThreadPoolExecutor(max(1, workers))
        self.classes, images = class_folders(root)
        self.training, self.validation = split(images)
        self.unreadable = set()

    def read(self, name, cut):
        """Crop and resize an image: bytes (3, size, size), or None if it does not decode.

        `cut(width, height)` returns left, top, width and height in pixels.
        """
        try:
            with Image.open(str(self.root / name)) as image:
                left, top, width, height = cut(*image.size)
                box = (left, top, left + width, top + height)
                part = image.convert("RGB").resize((self.size, self.size), Image.BILINEAR, box=box)
        except UNDECODABLE:
            return None
        return np.asarray(part).transpose(2, 0, 1)

    def stack_decoded(self, images, pixels):
        """Stack the decoded images and their labels: (bytes, labels); note the names of the others."""
        self.unreadable.update(name for (name, _), part in zip(images, pixels) if part is None)  # noqa: B905 - Python 3.6
        found = [(part, label) for (_, label), part in zip(images, pixels) if part is not None]  # noqa: B905
        labels = np.array([label for _, label in found], np.int64)
        return np.array([part for part, _ in found], np.uint8), labels

    def central_squares(self, images):
        """Return the central squares of the images that decode: (bytes, labels)."""

        def middle(width, height):
            left, top, side = central_square(width, height)
            return left, top, side, side

        return self.stack_decoded(images, list(self.pool.map(lambda image: self.read(image[0], middle), images)))

    def augmented(self, batch):
        """Endless batches of training images, (bytes, labels); another draw replaces an image that does not decode."""
        drawn = (
            (epoch, int(number))
            for epoch in itertools.count()
            for number in np.random.default_rng((self.seed, epoch)).permutation(len(self.training))
        )
        while True:
            parts, missing = [], batch
            while missing:
                chosen = list(itertools.islice(drawn, missing))
                images = [self.training[number] for _, number in chosen]
                parts.append(self.stack_decoded(images, list(self.pool.map(self.crop, chosen))))
                missing -= len(parts[-1][1])
            yield tuple(np.concatenate([part[place] for part in parts if len(part[1])]) for place in (0, 1))

    def crop(self, chosen):
        """Crop and flip a training image for an epoch; the result depends only on the seed, the epoch and the image."""
        epoch, number = chosen
        random = np.random.default_rng((self.seed, epoch, number))
        pixels = self.read(self.training[number][0], lambda width, height: random_crop(random, width, height))
        return pixels[:, :, ::-1] if pixels is not None and random.random() < 0.5 else pixels
