"""Real images for the PyTorch program of the WGAN: random ones that stay on the device, or JPEGs from a folder of class folders.

Pillow scales JPEGs so that the shorter side fits and crops their centre, as in the authors' program, in worker processes; they
travel as bytes and are mapped to -1 to 1, the range of the generator's images, on the device. The next image replaces an image that does not
decode; the name of the latter is reported at the end.
"""

import itertools

import torch
from arguments import refuse
from PIL import Image, ImageOps
from synthetic import own_images
from torch.utils.data import DistributedSampler
from with_pytorch.loading import Jpegs, Loaded, open_folder


class Synthetic:
    """A rank's batches of one iteration, one per update of the critic, repeated in every iteration."""

    def __init__(self, args, ranks, *, device, layout):
        share = {"rank": ranks.rank, "world_size": ranks.world_size, "batch": args.batch, "n_critic": args.n_critic}
        images = torch.from_numpy(own_images(args.seed, **share, image_size=args.image_size))
        self.batches = itertools.cycle([batch.to(device, memory_format=layout) for batch in images])
        self.units = 0

    def __next__(self):
        batch = next(self.batches)
        self.units += len(batch)
        return batch


class Fitted(Jpegs):
    """JPEGs of class folders, scaled and cropped."""

    def look(self, image):
        return ImageOps.fit(image, (self.image_size,) * 2, Image.Resampling.BILINEAR)


class Images(Loaded):
    """Endless batches of a rank's share of the images, on the device."""

    def __init__(self, args, dataset, sampler, *, device, layout):
        super().__init__(dataset, sampler, batch=args.batch, workers=args.loader_workers, device=device)
        self.layout = layout

    @property
    def units(self):
        return self.decoded

    def __next__(self):
        images, _ = super().__next__()
        images = images.to(self.device, non_blocking=True, memory_format=self.layout)
        return images.float().div_(127.5).sub_(1)


def jpegs(args, ranks, *, device, layout):
    """Open a rank's share of a folder."""
    dataset = open_folder(args, Fitted)
    if len(dataset) // ranks.world_size < args.batch:
        refuse(
            f"{args.data} holds {len(dataset)} JPEGs, too few for {ranks.world_size} batches of {args.batch}; ask for less"
        )
    share = {"num_replicas": ranks.world_size, "rank": ranks.rank}
    sampler = DistributedSampler(dataset, **share, shuffle=True, seed=args.seed, drop_last=True)
    return Images(args, dataset, sampler, device=device, layout=layout)
