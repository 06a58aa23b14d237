"""JPEGs of class folders for MXNet programs, read in place, for training and validation; `class_folders` defines the split.

MXNet's C++ iterator needs a packed file, has no validation split, and draws crops that no other program can reproduce. Here, worker processes
of Gluon's loader decode and crop with MXNet's own image functions (OpenCV); images travel to the device as bytes and are normalized there.
A crop depends only on the seed, the epoch and the image, not on the number of processes or ranks.
"""

import itertools
from pathlib import Path

import numpy as np
from class_folders import MEAN, STD, central_square, class_folders, is_whole, random_crop, share, split
from with_mxnet.shim import mx

# cv::InterpolationFlags. AREA is for shrinking: each pixel is the mean of the pixels that it covers, while bilinear interpolation
# would read only four of them.
BILINEAR, AREA = 1, 3
NO_IMAGE = -1


class CroppedImages(mx.gluon.data.Dataset):
    """Images by (number, epoch): augmented for that epoch, or the central square if the epoch is None.

    Returns bytes (3, size, size), the label and the number of the image used. If an image does not decode, training gets the next one that
    does; validation gets `NO_IMAGE` as the number.
    """

    def __init__(self, root, images, *, size, seed):
        self.root, self.images, self.size, self.seed = Path(root), images, size, seed

    def __len__(self):
        return len(self.images)

    def __getitem__(self, drawn):
        wanted, epoch = drawn
        if epoch is None:
            pixels = self.read(wanted, central_square)
            number = wanted if pixels is not None else NO_IMAGE
        else:
            random = np.random.default_rng((self.seed, epoch, wanted))
            for offset in range(len(self.images)):
                number = (wanted + offset) % len(self.images)
                pixels = self.read(number, lambda width, height: random_crop(random, width, height))
                if pixels is not None:
                    break
            else:
                raise RuntimeError(f"none of the {len(self.images)} images in {self.root} decodes")
            if random.random() < 0.5:
                pixels = pixels[:, ::-1]
        if pixels is None:
            pixels = np.zeros((self.size, self.size, 3), np.uint8)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)), self.images[number][1], number

    def read(self, number, crop):
        """Crop and resize an image: bytes (size, size, 3), or None if it does not decode.

        `crop(width, height)` returns left, top, width and height, or left, top and the side of a square.
        """
        jpeg = (self.root / self.images[number][0]).read_bytes()
        if not is_whole(jpeg):
            return None
        try:
            image = mx.image.imdecode(jpeg).asnumpy()
        except (mx.MXNetError, ValueError):
            return None
        left, top, width, *height = crop(image.shape[1], image.shape[0])
        height = height[0] if height else width
        part = mx.nd.array(image[top : top + height, left : left + width], dtype=np.uint8)
        smaller = self.size <= min(width, height)
        return mx.image.imresize(part, self.size, self.size, AREA if smaller else BILINEAR).asnumpy()


class Folders:
    """A rank's view of a folder of class folders; `unreadable` holds the names of images that this rank failed to decode."""

    def __init__(self, root, *, size, seed, rank, world_size, workers):
        self.root, self.size, self.seed, self.workers = root, size, seed, workers
        self.rank, self.world_size = rank, world_size
        self.classes, images = class_folders(root)
        self.training, self.validation = split(images)
        self.unreadable = set()

    def share(self, samples):
        return share(samples, rank=self.rank, world_size=self.world_size)

    def loader(self, images, batches):
        """Load `batches`, each a list of (number, epoch) as `CroppedImages` expects: bytes, labels and the numbers of the images used."""
        dataset = CroppedImages(self.root, images, size=self.size, seed=self.seed)
        return mx.gluon.data.DataLoader(dataset, batch_sampler=batches, num_workers=self.workers)


class TrainingBatches:
    """Endless batches of this rank's share of the training images, epoch after epoch: (images, labels), each split across `contexts`."""

    def __init__(self, folders, *, batch, contexts, dtype):
        self.folders, self.batch, self.contexts, self.dtype = folders, batch, contexts, dtype
        self.decoded = 0
        self.drawn = zip(self.batch_orders(), folders.loader(folders.training, self.batch_orders()), strict=True)

    def batch_orders(self):
        """Yield each batch's (number, epoch) pairs: ranks share one permutation per epoch, and drop its last, incomplete batch."""
        count = len(self.folders.training)
        full = count // self.folders.world_size // self.batch * self.batch
        for epoch in itertools.count():
            own = self.folders.share(np.random.default_rng((self.folders.seed, epoch)).permutation(count).tolist())
            for first in range(0, full, self.batch):
                yield [(number, epoch) for number in own[first : first + self.batch]]

    def __next__(self):
        wanted, (pixels, labels, used) = next(self.drawn)
        images = self.folders.training
        for (number, _), replacement in zip(wanted, used.asnumpy().tolist(), strict=True):
            skipped_count = (replacement - number) % len(images)
            self.folders.unreadable.update(images[(number + step) % len(images)][0] for step in range(skipped_count))
        self.decoded += len(wanted)
        pixels, labels = (mx.gluon.utils.split_data(part, len(self.contexts)) for part in (pixels, labels))
        placed = list(zip(pixels, labels, self.contexts, strict=True))
        return (
            [normalized(part, context).astype(self.dtype, copy=False) for part, _, context in placed],
            [part.as_in_context(context) for _, part, context in placed],
        )

    @property
    def skipped(self):
        """Sorted names of undecodable images, including validation images."""
        return sorted(self.folders.unreadable)


class Central:
    """Iterates over the central squares of `images`: (bytes, labels) on the host, without images that do not decode."""

    def __init__(self, folders, images, *, batch):
        self.folders, self.images = folders, images
        numbers = [(number, None) for number in range(len(images))]
        self.loader = folders.loader(images, [numbers[first : first + batch] for first in range(0, len(images), batch)])

    def __iter__(self):
        seen = 0
        for pixels, labels, used in self.loader:
            whole = used.asnumpy() != NO_IMAGE
            names = [name for name, _ in self.images[seen : seen + len(whole)]]
            self.folders.unreadable.update(name for name, fine in zip(names, whole, strict=True) if not fine)
            seen += len(whole)
            if whole.any():
                yield pixels.asnumpy()[whole], labels.asnumpy()[whole]


def normalized(pixels, context):
    """Move bytes (batch, 3, height, width) to a device and convert them to fp32 with mean 0 and deviation 1 over ImageNet."""
    mean, std = (mx.nd.array(values, ctx=context).reshape((1, 3, 1, 1)) for values in (MEAN, STD))
    return (mx.nd.array(pixels, ctx=context, dtype=np.uint8).astype("float32") - mean) / std
