"""Input of PyTorch programs: folders of class folders with JPEGs, decoded by Pillow, and endless batches from torch's DataLoader.

At interpreter exit, a DataLoader with persistent workers and pinned memory waits five seconds for each worker if it is still
referenced, since no worker has been told to exit. Dropping the last reference earlier avoids that.
"""

import atexit
import itertools
from pathlib import Path

import numpy as np
import torch
from arguments import refuse
from class_folders import class_folders, split
from PIL import Image
from torch.utils.data import DataLoader, Dataset

UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
# Batches that each worker of torch's DataLoader prefetches; its default.
PREFETCHED = 2


class Endless:
    """Endless batches of `loader`, whose sampler gets the number of each epoch."""

    def __init__(self, loader):
        self.loader = loader
        self.batches = self.epochs()

    def __next__(self):
        return next(self.batches)

    def epochs(self):
        for epoch in itertools.count():
            self.loader.sampler.set_epoch(epoch)
            batches = iter(self.loader)
            if not epoch:
                close_at_exit(self.close)
            yield from batches

    def close(self):
        self.batches.close()
        self.loader = None


def close_at_exit(close):
    """Call `close` at interpreter exit, before the handlers registered so far; call this once the workers have started."""
    atexit.register(close)


class Jpegs(Dataset):
    """JPEGs of class folders: (3, size, size) bytes, label, and names of undecodable images before it, which it replaces.

    `part` is 0 for the training part, 1 for the validation part, None for all images. A subclass has
    `look(image)`, which crops and resizes a Pillow image.
    """

    def __init__(self, root, *, image_size, part=None):
        self.root, self.image_size = Path(root), image_size
        self.classes, images = class_folders(root)
        self.images = images if part is None else split(images)[part]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        skipped = []
        for offset in range(len(self.images)):
            name, label = self.images[(index + offset) % len(self.images)]
            try:
                read = self.read(name)
            except UNDECODABLE:
                skipped.append(name)
            else:
                return read, label, skipped
        raise RuntimeError(f"none of the {len(self.images)} images in {self.root} decodes")

    def read(self, name):
        """Read an image as the loader's workers return it; raises one of UNDECODABLE if it can't be used."""
        with Image.open(self.root / name) as image:
            return pixels(self.look(image.convert("RGB")))


def pixels(image):
    """The bytes (3, height, width) of a Pillow image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def open_folder(args, reader, *, part=None):
    """Open --data, or one part of it, as a `Jpegs`; refuse a path that is not a folder."""
    if not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; PyTorch reads a folder of class folders with JPEGs")
    return reader(args.data, image_size=args.image_size, part=part)


def collate(drawn):
    """Stack images and labels, dropping undecodable ones; join the names of skipped images."""
    kept = [(image, label) for image, label, _ in drawn if image is not None]
    images = torch.stack([image for image, _ in kept]) if kept else torch.empty(0)
    return images, torch.tensor([label for _, label in kept]), [name for *_, names in drawn for name in names]


def loader(dataset, sampler, *, batch, workers, device, collate=collate):
    """Whole batches of a rank's training images, made by worker processes that live as long as the training."""
    return DataLoader(
        dataset,
        batch_size=batch,
        sampler=sampler,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=device.type == "cuda",
        prefetch_factor=PREFETCHED if workers else None,
        drop_last=True,
        persistent_workers=workers > 0,
    )


class Loaded:
    """Endless batches of a rank's share of the images, epoch after epoch: bytes and labels, as `collate` returns them."""

    def __init__(self, dataset, sampler, *, batch, workers, device):
        self.device, self.decoded, self.skipped = device, 0, set()
        self.batches = Endless(loader(dataset, sampler, batch=batch, workers=workers, device=device))

    def __next__(self):
        images, labels, skipped = next(self.batches)
        self.decoded += len(labels)
        self.skipped.update(skipped)
        return images, labels
