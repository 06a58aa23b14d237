"""What PyTorch programs read: folders of class folders with JPEGs, by Pillow, and batches of torch's loader without an end.

A loader whose processes live on, and that pins memory, waits five seconds for each of them when the interpreter ends, as long as
somebody still holds it: none of them has been told to leave. Who lets go of it before has nothing to wait for.
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
# Batches that torch's loader lets each worker prepare before they are asked for; its default.
PREFETCHED = 2


class Endless:
    """Batches of `loader`, whose sampler is told which epoch it orders."""

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
                leave_with(self.close)
            yield from batches

    def close(self):
        self.batches.close()
        self.loader = None


def leave_with(close):
    """Call `close` when the interpreter ends, before what was registered for that so far: once a loader's processes are there."""
    atexit.register(close)


class Jpegs(Dataset):
    """JPEGs of class folders: (3, size, size) bytes, label, names of those that did not decode and in whose place it comes.

    `part` is 0 for those that are trained on when the others are validated on, 1 for the others, None for all. Who derives from it says
    `look(image)`: what becomes of one of Pillow's, again as Pillow has it.
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
        """What the loader hands on of an image; one of UNDECODABLE is raised for one that can't be used."""
        with Image.open(self.root / name) as image:
            return pixels(self.look(image.convert("RGB")))


def pixels(image):
    """The bytes (3, height, width) of an image of Pillow's."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def open_folder(args, reader, *, part=None):
    """Open --data, or one part of it, with a `Jpegs`; refuse what is no folder."""
    if not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; PyTorch reads a folder of class folders with JPEGs")
    return reader(args.data, image_size=args.image_size, part=part)


def collate(drawn):
    """Stack images and labels, without those that did not decode; join the names of what was skipped."""
    kept = [(image, label) for image, label, _ in drawn if image is not None]
    images = torch.stack([image for image, _ in kept]) if kept else torch.empty(0)
    return images, torch.tensor([label for _, label in kept]), [name for *_, names in drawn for name in names]


def loader(dataset, sampler, *, batch, workers, device, collate=collate):
    """Whole batches of what a rank trains on, made by worker processes that live as long as the training."""
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
    """Endless batches of a rank's share of the images, epoch after epoch: bytes and labels as they were `collate`d."""

    def __init__(self, dataset, sampler, *, batch, workers, device):
        self.device, self.decoded, self.skipped = device, 0, set()
        self.batches = Endless(loader(dataset, sampler, batch=batch, workers=workers, device=device))

    def __next__(self):
        images, labels, skipped = next(self.batches)
        self.decoded += len(labels)
        self.skipped.update(skipped)
        return images, labels
