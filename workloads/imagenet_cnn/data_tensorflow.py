"""Batches for the TensorFlow program: the synthetic ones, which stay on the devices, or JPEGs from class folders or a TFRecord file.

Real images are decoded and augmented as for ImageNet training (random resized crop, flip) by tf.data's own threads, travel to the
devices as bytes, and are normalized there. A JPEG that is cut short or does not decode is left out and named at the end.
"""

import itertools
import json
from pathlib import Path

from arguments import refuse
from class_folders import END_OF_IMAGE
from synthetic import SHARED, samples
from with_tensorflow.shim import batches, tf, values, with_threads, without_errors

__all__ = ["SHARED", "Folders", "Records", "Synthetic", "normalized", "read_index"]

# Mean and standard deviation of ImageNet's training images, by channel, for pixels from 0 to 255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
# Images of one rank among which the next is drawn; the file is in random order already. At ImageNet's 110 KB each, 110 MB.
SHUFFLED = 1024
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


class Synthetic:
    """One batch a device of the synthetic data set, that stays there: the same batch every time.

    Replica r of all takes samples `r * batch` to `(r + 1) * batch`, or all take those from `shared` on.
    """

    def __init__(self, args, ranks, *, shared=None):
        def batch(replica):
            first = (ranks.offset + replica) * args.batch if shared is None else shared
            shape = {"image_size": args.image_size, "num_classes": args.num_classes}
            images, labels = samples(args.seed, first=first, count=args.batch, **shape)
            return tf.constant(images.transpose(0, 2, 3, 1)), tf.constant(labels)

        self.batch = values(ranks.strategy, batch)

    def __next__(self):
        return self.batch


def normalized(images):
    """Turn bytes into numbers of mean 0 and deviation 1; synthetic images already are."""
    return (tf.cast(images, tf.float32) - MEAN) / STD if images.dtype == tf.uint8 else images


def decode(jpeg, size, seed):
    """Cut 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, resize, flip every other time: (size, size, 3) bytes.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842). Only what is cut out is decoded; as
    a decoder then does not see the end of a file that was cut short, it is looked for first.
    """
    tail = tf.strings.substr(jpeg, tf.maximum(tf.strings.length(jpeg) - 1024, 0), 1024)
    tail = tf.cast(tf.io.decode_raw(tail, tf.uint8), tf.int32)
    ends = tf.reduce_any(tail[:-1] * 256 + tail[1:] == int.from_bytes(END_OF_IMAGE, "big"))
    with tf.control_dependencies([tf.debugging.Assert(ends, ["no end marker"])]):
        shape = tf.io.extract_jpeg_shape(jpeg)
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        shape,
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
    )
    image = tf.io.decode_and_crop_jpeg(jpeg, tf.concat([begin[:2], extent[:2]], 0), channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, (size, size)), seed=seed)
    return tf.cast(tf.round(image), tf.uint8)


def pipeline(elements, load, args, ranks):
    """Turn elements into batches on the devices; `load` reads (JPEG, label, number) of one. What does not decode is left out."""

    def element(*fields: tf.Tensor):
        jpeg, label, number = load(*fields)
        return decode(jpeg, args.image_size, args.seed + ranks.rank + 1), label, number

    workers = max(1, args.loader_workers)
    images = without_errors(elements.map(element, num_parallel_calls=workers))
    images = images.batch(args.batch, drop_remainder=True).prefetch(2 * args.devices)
    return batches(ranks.strategy, with_threads(images, workers))


class Folders:
    """Endless batches of a process' share of the JPEGs in class folders, epoch after epoch, each in a new order.

    `images` is a list of (path below --data, label), as `class_folders` gives it.
    """

    def __init__(self, args, ranks, *, images):
        self.args, self.strategy, self.names = args, ranks.strategy, [name for name, _ in images]
        self.rank, self.processes = ranks.rank, ranks.world_size // args.devices
        self.paths = tf.constant([str(Path(args.data) / name) for name in self.names])
        self.labels = tf.constant([label for _, label in images], tf.int64)
        if not any(self.decodes(number) for number in self.order(0)):
            refuse(f"none of the JPEGs of rank {self.rank} in {args.data} decodes; give others")
        self.drawn, self.decoded = [], 0
        order = tf.data.Dataset.range(2**31).flat_map(
            lambda epoch: tf.data.Dataset.from_tensor_slices(self.order(epoch))
        )
        self.batches = pipeline(order, self.load, args, ranks)

    def order(self, epoch):
        """Numbers of this process' images in the order of an epoch; the processes' shares are disjoint."""
        with tf.device("/cpu:0"):
            seed = tf.stack([tf.constant(self.args.seed, tf.int64), tf.cast(epoch, tf.int64)])
            draws = tf.random.stateless_uniform([len(self.names)], seed)
            return tf.argsort(draws, stable=True)[self.rank :: self.processes]

    def load(self, number):
        return tf.io.read_file(self.paths[number]), self.labels[number], number

    def decodes(self, number):
        try:
            decode(self.load(number)[0], self.args.image_size, seed=0)
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError):
            return False
        return True

    def __next__(self):
        images, labels, numbers = next(self.batches)
        self.drawn.append(numbers)  # not looked at before the end: they may be on a device
        self.decoded += self.args.batch * self.args.devices
        return images, labels

    @property
    def skipped(self):
        """Names of the images that were left out: those that the order has before one that was used."""
        order = (number for epoch in itertools.count() for number in self.order(epoch).numpy().tolist())
        skipped = set()
        for numbers in self.drawn:
            for part in self.strategy.experimental_local_results(numbers):
                for used in part.numpy().tolist():
                    skipped.update(self.names[number] for number in iter(lambda: next(order), used))
        return sorted(skipped)


class Records:
    """Endless batches of a process' share of a TFRecord file, epoch after epoch, each in a new order."""

    def __init__(self, args, ranks):
        self.size, self.decoded = args.batch * args.devices, 0
        self.skipped = read_index(args.data)["skipped"]
        records = tf.data.TFRecordDataset(str(args.data)).shard(ranks.world_size // args.devices, ranks.rank)
        records = records.shuffle(SHUFFLED, seed=args.seed, reshuffle_each_iteration=True).repeat()
        self.batches = pipeline(records, self.load, args, ranks)

    def load(self, record):
        found = tf.io.parse_single_example(record, FEATURES)
        return found["image/encoded"], found["image/class/label"], tf.constant(0)

    def __next__(self):
        images, labels, _ = next(self.batches)
        self.decoded += self.size
        return images, labels


def read_index(path):
    """Read what `pack_tfrecord` wrote beside a TFRecord file."""
    return json.loads(Path(path).with_suffix(".json").read_text(encoding="utf-8"))
