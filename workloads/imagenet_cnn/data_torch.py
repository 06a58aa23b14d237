"""Batches for the PyTorch program: one random batch that stays on the device, or JPEGs from a folder of class folders.

Real images are decoded and augmented as for ImageNet training (random resized crop, flip) by Pillow in worker processes, travel to
the device as bytes, and are normalized there. An image that does not decode is replaced by the next one and named at the end.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import torch
from class_folders import class_folders
from PIL import Image
from synthetic import SHARED, samples
from torch.utils.data import DataLoader, Dataset

__all__ = ["SHARED", "ClassFolders", "Images", "Synthetic"]

# Mean and standard deviation of ImageNet's training images, by channel, for pixels from 0 to 255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


class Synthetic:
    """One batch of the synthetic data set, from its sample `first` on, that stays on the device: the same batch every time."""

    def __init__(self, args, *, first, device, layout):
        shape = {"image_size": args.image_size, "num_classes": args.num_classes}
        images, labels = map(torch.from_numpy, samples(args.seed, first=first, count=args.batch, **shape))
        self.batch = images.to(device, memory_format=layout), labels.to(device)

    def __next__(self):
        return self.batch


class ClassFolders(Dataset):
    """The JPEGs of class folders, each drawn with a new random crop and flip: (3, size, size) bytes, label, skipped names."""

    def __init__(self, root, *, image_size):
        self.root, self.image_size = Path(root), image_size
        self.classes, self.images = class_folders(root)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        skipped = []
        for offset in range(len(self.images)):
            name, label = self.images[(index + offset) % len(self.images)]
            try:
                with Image.open(self.root / name) as image:
                    pixels = augment(image.convert("RGB"), self.image_size)
            except UNDECODABLE:
                skipped.append(name)
            else:
                return pixels, label, skipped
        raise RuntimeError(f"none of the {len(self.images)} images in {self.root} decodes")


def augment(image, size):
    """Cut 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, resize, flip every other time.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842), as torchvision's RandomResizedCrop.
    """
    width, height = image.size
    crop = (0, 0, width, height)
    for _ in range(10):
        area = width * height * torch.empty(()).uniform_(0.08, 1).item()
        ratio = math.exp(torch.empty(()).uniform_(math.log(3 / 4), math.log(4 / 3)).item())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = (torch.randint(free + 1, ()).item() for free in (width - w, height - h))
            crop = (left, top, left + w, top + h)
            break
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=crop)
    if torch.rand(()) < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def collate(drawn):
    """Stack images and labels; join the names of what was skipped on the way."""
    images, labels, skipped = zip(*drawn, strict=True)
    return torch.stack(images), torch.tensor(labels), [name for names in skipped for name in names]


def endless(loader):
    """Batches of one epoch after the other, each in its own order."""
    for epoch in itertools.count():
        loader.sampler.set_epoch(epoch)
        yield from loader


class Images:
    """Endless batches of a rank's share of the images, epoch after epoch, on the device and normalized."""

    def __init__(self, dataset, sampler, *, batch, workers, device, layout):
        loader = DataLoader(
            dataset,
            batch_size=batch,
            sampler=sampler,
            num_workers=workers,
            collate_fn=collate,
            pin_memory=device.type == "cuda",
            drop_last=True,
            persistent_workers=workers > 0,
        )
        self.device, self.layout = device, layout
        self.mean = torch.tensor(MEAN, device=device).view(3, 1, 1)
        self.std = torch.tensor(STD, device=device).view(3, 1, 1)
        self.decoded = 0
        self.skipped = set()
        self.batches = endless(loader)

    def __next__(self):
        images, labels, skipped = next(self.batches)
        self.decoded += len(labels)
        self.skipped.update(skipped)
        images = images.to(self.device, non_blocking=True, memory_format=self.layout)
        return images.float().sub_(self.mean).div_(self.std), labels.to(self.device, non_blocking=True)
