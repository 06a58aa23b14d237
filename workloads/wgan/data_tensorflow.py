"""Input of an iteration of the WGAN, for the TensorFlow program: (real images, latents, mixes) on each device.

Real images are random, (n_critic, batch, size, size, 3) in fp32 between -1 and 1, and stay on the device; or they are the central squares of
JPEGs from a folder of class folders, scaled to (n_critic x batch, size, size, 3) bytes, as in the authors' program.
Latents and mixes hold all draws, (DRAWS, batch, 1, 1, their size) and (DRAWS, batch, 1, 1, 1), which stay on the device; an
iteration takes its own draws from them.
"""

from functools import partial
from pathlib import Path

from arguments import refuse
from class_folders import class_folders
from flags import latent_size
from synthetic import SHARED, images, latents, mixes, own_draws, own_images
from with_tensorflow import jpegs
from with_tensorflow.shim import tf, values


def all_draws(args, ranks):
    """Latents and mixes of all draws; each replica has its own."""

    def of(replica, part):
        share = {"rank": ranks.offset + replica, "world_size": ranks.world_size, "batch": args.batch}
        latents, mixes = own_draws(args.seed, size=latent_size(args.model), **share)
        return tf.constant((latents, mixes[..., None])[part][:, :, None, None])

    return tuple(values(ranks.strategy, partial(of, part=part)) for part in range(2))


class Synthetic:
    """The batches of one iteration, one per update of the critic, repeated in every iteration."""

    def __init__(self, args, ranks):
        def of(replica):
            share = {"rank": ranks.offset + replica, "world_size": ranks.world_size, "batch": args.batch}
            real = own_images(args.seed, **share, n_critic=args.n_critic, image_size=args.image_size)
            return tf.constant(real.transpose(0, 1, 3, 4, 2))

        self.batch = (values(ranks.strategy, of), *all_draws(args, ranks))
        self.per_iteration, self.units = args.batch * args.n_critic * args.devices, 0

    def __next__(self):
        self.units += self.per_iteration
        return self.batch


class Jpegs(jpegs.Folders):
    """Endless batches of a process' share of the JPEGs."""

    def __init__(self, args, ranks):
        if not Path(args.data).is_dir():
            refuse(f"--data={args.data} is not a folder; this program reads a folder of class folders with JPEGs")
        _, found = class_folders(args.data)
        if len(found) // ranks.world_size < args.batch:
            refuse(f"{args.data} holds {len(found)} JPEGs, too few for {ranks.world_size} batches of {args.batch}")
        super().__init__(args, ranks, images=found, batch=args.batch * args.n_critic)
        self.draws = all_draws(args, ranks)

    def look(self, jpeg, _seed):
        extent = jpegs.whole_shape(jpeg)[:2]
        square = tf.stack([tf.reduce_min(extent)] * 2)
        return tf.cast(
            tf.round(jpegs.decode_crop(jpeg, (extent - square) // 2, square, self.args.image_size)), tf.uint8
        )

    @property
    def units(self):
        """Number of real images read."""
        return self.decoded

    def __next__(self):
        real, _ = super().__next__()
        return (real, *self.draws)


def shared(args, ranks):
    """Batches, latents and mixes of one iteration, the same for all replicas; no replica trains on them."""

    def real(_replica):
        size = args.image_size
        found = images(args.seed, first=SHARED, count=args.n_critic * args.batch, image_size=size)
        return tf.constant(found.reshape(args.n_critic, args.batch, 3, size, size).transpose(0, 1, 3, 4, 2))

    whole = {"first": 0, "count": args.batch, "world_batch": args.batch}
    numbers = range(SHARED, SHARED + args.n_critic + 1)

    def drawn(_replica):
        found = [latents(args.seed, draw=number, size=latent_size(args.model), **whole) for number in numbers]
        return tf.stack(found)[:, :, None, None]

    def mixed(_replica):
        return tf.stack([mixes(args.seed, draw=number, **whole) for number in numbers])[..., None, None, None]

    return values(ranks.strategy, real), values(ranks.strategy, drawn), values(ranks.strategy, mixed)
