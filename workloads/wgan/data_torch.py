"""Real images for the PyTorch program of the WGAN: random ones that stay on the device, or JPEGs from a folder of class folders.

JPEGs are scaled so that the shorter side fits and cut to their middle, as the authors' program does, by Pillow in worker processes; they
travel as bytes and are brought to -1 to 1, the range of the generator's images, on the device. One that does not decode is replaced by
the next one and named at the end.
"""

import itertools
from pathlib import Path

import numpy as np
import torch
from arguments import refuse
from imagenet_cnn.class_folders import class_folders
from PIL import Image, ImageOps
from synthetic import own_images
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from with_pytorch.loading import Endless

UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


class Synthetic:
    """A rank's batches of one iteration, one for each update of the critic, which come again in every iteration."""

    def __init__(self, args, ranks, *, device, layout):
        share = {"rank": ranks.rank, "world_size": ranks.world_size, "batch": args.batch, "n_critic": args.n_critic}
        images = torch.from_numpy(own_images(args.seed, **share, image_size=args.image_size))
        self.batches = itertools.cycle([batch.to(device, memory_format=layout) for batch in images])
        self.units = 0

    def __next__(self):
        batch = next(self.batches)
        self.units += len(batch)
        return batch


class Jpegs(Dataset):
    """The JPEGs of class folders: (3, size, size) bytes, skipped names."""

    def __init__(self, root, *, image_size):
        self.root, self.image_size = Path(root), image_size
        _, self.images = class_folders(root)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        skipped = []
        for offset in range(len(self.images)):
            name, _ = self.images[(index + offset) % len(self.images)]
            try:
                with Image.open(self.root / name) as image:
                    pixels = ImageOps.fit(image.convert("RGB"), (self.image_size,) * 2, Image.Resampling.BILINEAR)
            except UNDECODABLE:
                skipped.append(name)
            else:
                return torch.from_numpy(np.array(pixels)).permute(2, 0, 1), skipped
        raise RuntimeError(f"none of the {len(self.images)} images in {self.root} decodes")


def collate(drawn):
    """Stack images; join the names of what was skipped on the way."""
    images, skipped = zip(*drawn, strict=True)
    return torch.stack(images), [name for names in skipped for name in names]


class Batches:
    """Endless batches of a rank's share of the images, epoch after epoch, on the device."""

    def __init__(self, loader, *, device, layout):
        self.device, self.layout = device, layout
        self.decoded = 0
        self.skipped = set()
        self.batches = Endless(loader)

    @property
    def units(self):
        return self.decoded

    def __next__(self):
        images, skipped = next(self.batches)
        self.decoded += len(images)
        self.skipped.update(skipped)
        images = images.to(self.device, non_blocking=True, memory_format=self.layout)
        return images.float().div_(127.5).sub_(1)


def jpegs(args, ranks, *, device, layout):
    """Open a rank's share of a folder."""
    if not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; PyTorch reads a folder of class folders with JPEGs")
    dataset = Jpegs(args.data, image_size=args.image_size)
    if len(dataset) // ranks.world_size < args.batch:
        refuse(
            f"{args.data} holds {len(dataset)} JPEGs, too few for {ranks.world_size} batches of {args.batch}; ask for less"
        )
    share = {"num_replicas": ranks.world_size, "rank": ranks.rank}
    loader = DataLoader(
        dataset,
        batch_size=args.batch,
        sampler=DistributedSampler(dataset, **share, shuffle=True, seed=args.seed, drop_last=True),
        num_workers=args.loader_workers,
        collate_fn=collate,
        pin_memory=device.type == "cuda",
        drop_last=True,
        persistent_workers=args.loader_workers > 0,
    )
    return Batches(loader, device=device, layout=layout)
