"""Real images for the PyTorch programs: JPEGs from a folder of class folders.

They are decoded and augmented as for ImageNet training (random resized crop, flip) by Pillow in worker processes, travel to
the device as bytes, and are normalized there. In training, the next image replaces an image that does not decode; validation uses
central crops and skips such images. Their names are reported at the end.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from class_folders import MEAN, STD, central_square, share
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from with_pytorch.loading import PREFETCHED, UNDECODABLE, Jpegs, Loaded, close_at_exit, collate, pixels


class Crop(NamedTuple):
    """The part of an image to train on, in pixels, and whether to mirror it left to right."""

    left: int
    top: int
    width: int
    height: int
    flip: bool


class ClassFolders(Jpegs):
    """JPEGs of class folders, with a new random crop and flip each time."""

    def look(self, image):
        return augment(image, self.image_size)


class Central(Dataset):
    """Central squares of `images`, (name, label) below `root`: (bytes (3, size, size), label, []), or (None, label, [name]) if undecodable."""

    def __init__(self, root, images, *, image_size):
        self.root, self.images, self.image_size = Path(root), images, image_size

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        name, label = self.images[index]
        try:
            with Image.open(self.root / name) as image:
                return pixels(central_crop(image.convert("RGB"), self.image_size)), label, []
        except UNDECODABLE:
            return None, label, [name]


def central_crop(image, size):
    left, top, side = central_square(*image.size)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def draw_crop(width, height):
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
    """Crop a random part of an image, resize and flip it."""
    crop = draw_crop(*image.size)
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if crop.flip else image


class Normalize:
    """Moves bytes to the device and converts them to the networks' input: fp32 with mean 0 and deviation 1 over ImageNet."""

    def __init__(self, *, device, layout):
        self.device, self.layout = device, layout
        self.mean = torch.tensor(MEAN, device=device).view(3, 1, 1)
        self.std = torch.tensor(STD, device=device).view(3, 1, 1)

    def __call__(self, images):
        images = images.to(self.device, non_blocking=True, memory_format=self.layout)
        return images.float().sub_(self.mean).div_(self.std)


class Images(Loaded):
    """Endless batches of a rank's share of the images, on the device and normalized; at most `ahead` are prefetched."""

    def __init__(self, dataset, sampler, *, batch, workers, device, layout):
        super().__init__(dataset, sampler, batch=batch, workers=workers, device=device)
        self.normalize = Normalize(device=device, layout=layout)
        self.ahead = PREFETCHED * workers

    def __next__(self):
        images, labels = super().__next__()
        return self.normalize(images), labels.to(self.device, non_blocking=True)


class Validation:
    """A rank's share of the validation images, on the device and normalized, as often as it is iterated; the last batch may be smaller."""

    def __init__(self, root, images, *, image_size, batch, workers, rank, world_size, device, layout):
        images = share(images, rank=rank, world_size=world_size)
        options = {"collate_fn": collate, "pin_memory": device.type == "cuda", "persistent_workers": workers > 0}
        dataset = Central(root, images, image_size=image_size)
        # A separate generator: otherwise each validation would consume a random number of the training.
        options["generator"] = torch.Generator()
        self.loader = DataLoader(dataset, batch_size=batch, num_workers=workers, **options)
        # Workers are forked here, before the first step: a process forked after autograd and Gloo have run may wait forever for a lock that another
        # thread held, as one in a few dozen runs with two ranks did at its first validation.
        if workers:
            iter(self.loader)
            close_at_exit(self.close)
        self.normalize = Normalize(device=device, layout=layout)
        self.skipped = set()

    def __iter__(self):
        for images, labels, skipped in self.loader:
            self.skipped.update(skipped)
            if len(labels):
                yield self.normalize(images), labels.to(self.normalize.device, non_blocking=True)

    def close(self):
        self.loader = None
