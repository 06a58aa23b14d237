"""JPEGs from class folders for TensorFlow programs, read and decoded by tf.data's own threads.

Truncated or undecodable images are skipped and named at the end. `images` are lists of (path below --data, label), as
`class_folders` returns them.
"""

import itertools
from pathlib import Path

from arguments import refuse
from class_folders import END_OF_IMAGE
from with_tensorflow.shim import batches, tf, with_threads, without_errors


def whole_shape(jpeg):
    """Height, width and channels of a JPEG; an error if it is truncated.

    A decoder that decodes only part of an image does not reach the end of the file, so its end marker is checked first.
    """
    tail = tf.strings.substr(jpeg, tf.maximum(tf.strings.length(jpeg) - 1024, 0), 1024)
    tail = tf.cast(tf.io.decode_raw(tail, tf.uint8), tf.int32)
    ends = tf.reduce_any(tail[:-1] * 256 + tail[1:] == int.from_bytes(END_OF_IMAGE, "big"))
    with tf.control_dependencies([tf.debugging.Assert(ends, ["no end marker"])]):
        return tf.io.extract_jpeg_shape(jpeg)


def decode_crop(jpeg, begin, extent, size):
    """Decode a part of a JPEG, (top, left) and (height, width), and resize it: (size, size, 3) numbers from 0 to 255."""
    return tf.image.resize(tf.io.decode_and_crop_jpeg(jpeg, tf.concat([begin, extent], 0), channels=3), (size, size))


def loader(args, images, look):
    """Make a function that loads an image by its number: (`look` of the JPEG, label, number)."""
    paths = tf.constant([str(Path(args.data) / name) for name, _ in images], tf.string)
    labels = tf.constant([label for _, label in images], tf.int64)
    return lambda number: (look(tf.io.read_file(paths[number])), labels[number], number)


def loaded(elements, load, args):
    """Data set of `load` applied to each element, without the undecodable ones."""
    return without_errors(elements.map(load, num_parallel_calls=max(1, args.loader_workers)))


def pipeline(elements, load, args, ranks, *, batch):
    """Iterator over batches of `batch` loaded elements per device."""
    images = loaded(elements, load, args).batch(batch, drop_remainder=True).prefetch(2 * args.devices)
    return batches(ranks.strategy, with_threads(images, max(1, args.loader_workers)))


class Folders:
    """Endless batches of a process' share of the JPEGs, epoch after epoch, each in a new order; by default --batch per device.

    A subclass has `look(jpeg, seed)`, which turns a JPEG into (size, size, 3) bytes.
    """

    def __init__(self, args, ranks, *, images, batch=None):
        self.args, self.strategy, self.names = args, ranks.strategy, [name for name, _ in images]
        self.rank, self.processes, self.batch = ranks.rank, ranks.world_size // args.devices, batch or args.batch
        seed = args.seed + ranks.rank + 1
        self.load = loader(args, images, lambda jpeg: self.look(jpeg, seed))
        if not any(self.decodes(number) for number in self.order(0)):
            refuse(f"none of the JPEGs of rank {self.rank} in {args.data} decodes; give others")
        self.used_numbers, self.decoded = [], 0
        self.undecodable = set()  # names of images, found elsewhere
        order = tf.data.Dataset.range(2**31).flat_map(
            lambda epoch: tf.data.Dataset.from_tensor_slices(self.order(epoch))
        )
        self.batches = pipeline(order, self.load, args, ranks, batch=self.batch)

    def order(self, epoch):
        """Numbers of this process' images in the order of an epoch; the processes' shares are disjoint."""
        with tf.device("/cpu:0"):
            seed = tf.stack([tf.constant(self.args.seed, tf.int64), tf.cast(epoch, tf.int64)])
            draws = tf.random.stateless_uniform([len(self.names)], seed)
            return tf.argsort(draws, stable=True)[self.rank :: self.processes]

    def decodes(self, number):
        try:
            self.load(number)
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError):
            return False
        return True

    def __next__(self):
        images, labels, numbers = next(self.batches)
        self.used_numbers.append(numbers)  # read at the end only: they may be on a device
        self.decoded += self.batch * self.args.devices
        return images, labels

    @property
    def skipped(self):
        """Names of the skipped images: those that precede a used one in the order."""
        order = (number for epoch in itertools.count() for number in self.order(epoch).numpy().tolist())
        skipped = set(self.undecodable)
        for numbers in self.used_numbers:
            for part in self.strategy.experimental_local_results(numbers):
                for used in part.numpy().tolist():
                    skipped.update(self.names[number] for number in iter(lambda: next(order), used))
        return sorted(skipped)
