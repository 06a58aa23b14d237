"""Batches for the PyTorch programs: one random batch that stays on the device, or JPEGs from a folder of class folders.

Real images are decoded and augmented as for ImageNet training (random resized crop, flip) by Pillow in worker processes, travel to
the device as bytes, and are normalized there. An image that does not decode is replaced by the next one and named at the end. Those
that are validated on are cut out of the middle; there one that does not decode counts for nothing.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from arguments import refuse
from class_folders import MEAN, STD, central_square, class_folders, share, split
from PIL import Image
from synthetic import samples
from torch.utils.data import DataLoader, Dataset
from with_pytorch.loading import Endless, leave_with

UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
# Batches that torch's loader lets each worker prepare before they are asked for; its default.
PREFETCHED = 2


class Crop(NamedTuple):
    """The part of an image that is trained on, in pixels, and whether its left becomes its right."""

    left: int
    top: int
    width: int
    height: int
    flip: bool


class Synthetic:
    """One batch of the synthetic data set, from its sample `first` on, that stays on the device: the same batch every time."""

    def __init__(self, args, *, first, device, layout):
        shape = {"image_size": args.image_size, "num_classes": args.num_classes}
        images, labels = map(torch.from_numpy, samples(args.seed, first=first, count=args.batch, **shape))
        self.batch = images.to(device, memory_format=layout), labels.to(device)

    def __next__(self):
        return self.batch


class ClassFolders(Dataset):
    """JPEGs of class folders, each drawn with a new random crop and flip: (3, size, size) bytes, label, skipped names.

    `part` is 0 for those that are trained on when the others are validated on, 1 for the others, None for all.
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
            return augment(image.convert("RGB"), self.image_size)


class Central(Dataset):
    """The middle of each of `images`, (name, label) below `root`: (3, size, size) bytes, label, no name; or None, label, its name."""

    def __init__(self, root, images, *, image_size):
        self.root, self.images, self.image_size = Path(root), images, image_size

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        name, label = self.images[index]
        try:
            with Image.open(self.root / name) as image:
                return middle(image.convert("RGB"), self.image_size), label, []
        except UNDECODABLE:
            return None, label, [name]


def open_folder(args, *, part=None, reader=ClassFolders):
    """Open --data, or one part of it, with a `ClassFolders`; refuse what is no folder."""
    if not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; PyTorch reads a folder of class folders with JPEGs")
    return reader(args.data, image_size=args.image_size, part=part)


def middle(image, size):
    """Cut the square out of its middle and resize it."""
    left, top, side = central_square(*image.size)
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def draw(width, height):
    """Draw 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, flipped every other time, with torch's generator.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842), as torchvision's RandomResizedCrop.
    """
    left, top, w, h = 0, 0, width, height
    for _ in range(10):
        area = width * height * torch.empty(()).uniform_(0.08, 1).item()
        ratio = math.exp(torch.empty(()).uniform_(math.log(3 / 4), math.log(4 / 3)).item())
        drawn = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < drawn[0] <= width and 0 < drawn[1] <= height:
            w, h = drawn
            left, top = (torch.randint(free + 1, ()).item() for free in (width - w, height - h))
            break
    return Crop(left, top, w, h, flip=bool(torch.rand(()) < 0.5))


def augment(image, size):
    """Cut a part that is drawn out of an image, resize and flip it: (3, size, size) bytes."""
    crop = draw(*image.size)
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if crop.flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def collate(drawn):
    """Stack images and labels, without those that did not decode; join the names of what was skipped."""
    kept = [(image, label) for image, label, _ in drawn if image is not None]
    images = torch.stack([image for image, _ in kept]) if kept else torch.empty(0)
    return images, torch.tensor([label for _, label in kept]), [name for *_, names in drawn for name in names]


class Normalize:
    """Brings bytes to the device and makes of them what networks take: fp32 of mean 0 and deviation 1 over ImageNet."""

    def __init__(self, *, device, layout):
        self.device, self.layout = device, layout
        self.mean = torch.tensor(MEAN, device=device).view(3, 1, 1)
        self.std = torch.tensor(STD, device=device).view(3, 1, 1)

    def __call__(self, images):
        images = images.to(self.device, non_blocking=True, memory_format=self.layout)
        return images.float().sub_(self.mean).div_(self.std)


def loader(dataset, sampler, *, batch, workers, device, collate):
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


class Images:
    """Endless batches of a rank's share of the images, epoch after epoch, on the device and normalized.

    At most `ahead` of them lie ready before they are asked for.
    """

    def __init__(self, dataset, sampler, *, batch, workers, device, layout):
        loaded = loader(dataset, sampler, batch=batch, workers=workers, device=device, collate=collate)
        self.normalize = Normalize(device=device, layout=layout)
        self.ahead = PREFETCHED * workers
        self.decoded = 0
        self.skipped = set()
        self.batches = Endless(loaded)

    def __next__(self):
        images, labels, skipped = next(self.batches)
        self.decoded += len(labels)
        self.skipped.update(skipped)
        return self.normalize(images), labels.to(self.normalize.device, non_blocking=True)


class Validation:
    """A rank's share of the validation images, again and again, on the device and normalized; the last batch may be smaller."""

    def __init__(self, root, images, *, image_size, batch, workers, rank, world_size, device, layout):
        images = share(images, rank=rank, world_size=world_size)
        options = {"collate_fn": collate, "pin_memory": device.type == "cuda", "persistent_workers": workers > 0}
        dataset = Central(root, images, image_size=image_size)
        # A generator of its own: each pass would otherwise draw a number that is the training's.
        options["generator"] = torch.Generator()
        self.loader = DataLoader(dataset, batch_size=batch, num_workers=workers, **options)
        # Workers are forked here, before the first step: the fork of a process whose autograd and Gloo have been at work may wait forever
        # for a lock that a thread held, as one in some tens of runs with two ranks did at its first validation.
        if workers:
            iter(self.loader)
            leave_with(self.close)
        self.normalize = Normalize(device=device, layout=layout)
        self.skipped = set()

    def __iter__(self):
        for images, labels, skipped in self.loader:
            self.skipped.update(skipped)
            if len(labels):
                yield self.normalize(images), labels.to(self.normalize.device, non_blocking=True)

    def close(self):
        """End the loader's processes."""
        self.loader = None
