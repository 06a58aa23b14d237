"""Real images for the TensorFlow program: JPEGs from class folders or a TFRecord file.

They are decoded and augmented as for ImageNet training (random resized crop, flip), travel to the devices as bytes, and are
normalized there. Validation uses central crops.
"""

import numpy as np
from class_folders import CENTRAL, MEAN, STD, read_index, share
from with_tensorflow import jpegs
from with_tensorflow.shim import tf, values, with_threads

# Shuffle buffer of a rank, in images; the file is in random order already. At ImageNet's 110 KB each, 110 MB.
SHUFFLED = 1024
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def normalized(images):
    """Convert bytes to mean 0 and deviation 1; synthetic images already have them."""
    return (tf.cast(images, tf.float32) - MEAN) / STD if images.dtype == tf.uint8 else images


def decode(jpeg, size, seed):
    """Crop 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, resize, flip every other time: (size, size, 3) bytes.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842).
    """
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        jpegs.whole_shape(jpeg),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
    )
    image = tf.image.random_flip_left_right(jpegs.decode_crop(jpeg, begin[:2], extent[:2], size), seed=seed)
    return tf.cast(tf.round(image), tf.uint8)


def central_crop(jpeg, size):
    """Crop the square of `class_folders.central_square` and resize it: (size, size, 3) bytes."""
    extent = jpegs.whole_shape(jpeg)[:2]
    side = tf.cast(tf.round(CENTRAL * tf.cast(tf.reduce_min(extent), tf.float32)), tf.int32)
    square = tf.stack([tf.maximum(side, 1)] * 2)
    return tf.cast(tf.round(jpegs.decode_crop(jpeg, (extent - square) // 2, square, size)), tf.uint8)


class Folders(jpegs.Folders):
    def look(self, jpeg, seed):
        return decode(jpeg, self.args.image_size, seed)


class Records:
    """Endless batches of a process' share of a TFRecord file, in a new order each epoch."""

    def __init__(self, args, ranks):
        self.size, self.decoded = args.batch * args.devices, 0
        self.skipped = read_index(args.data)["skipped"]
        records = tf.data.TFRecordDataset(str(args.data)).shard(ranks.world_size // args.devices, ranks.rank)
        records = records.shuffle(SHUFFLED, seed=args.seed, reshuffle_each_iteration=True).repeat()
        seed = args.seed + ranks.rank + 1

        def load(record):
            found = tf.io.parse_single_example(record, FEATURES)
            return decode(found["image/encoded"], args.image_size, seed), found["image/class/label"], tf.constant(0)

        self.batches = jpegs.pipeline(records, load, args, ranks, batch=args.batch)

    def __next__(self):
        images, labels, _ = next(self.batches)
        self.decoded += self.size
        return images, labels


def read_central(args, images):
    """Read `images`, as listed by `class_folders`: bytes (count, size, size, 3), labels (count,), and the names of undecodable images."""
    pixels, labels, numbers = [], [], []
    for image, label, number in central_images(args, images):
        pixels.append(image.numpy())
        labels.append(int(label))
        numbers.append(int(number))
    unread = [name for number, (name, _) in enumerate(images) if number not in set(numbers)]
    return np.array(pixels, np.uint8), np.array(labels, np.int64), unread


def central_images(args, images):
    """A data set of (central crop, label, number) of the `images` that decode, in order."""
    load = jpegs.loader(args, images, lambda jpeg: central_crop(jpeg, args.image_size))
    return jpegs.loaded(tf.data.Dataset.range(len(images)), load, args)


class Validation:
    """A process' share of the validation images, each once per call of `batches`, not augmented."""

    def __init__(self, args, ranks, *, images):
        own = share(images, rank=ranks.rank, world_size=ranks.world_size // args.devices)
        self.batch, self.devices, self.strategy = args.batch, args.devices, ranks.strategy
        self.names, self.skipped = [name for name, _ in own], set()
        # All batches have the same shape, so that one graph serves them all; padding of the last batch has number -1.
        no_image = (tf.zeros((args.image_size, args.image_size, 3), tf.uint8), *tf.constant([0, -1], tf.int64))
        padding = tf.data.Dataset.from_tensors(no_image).repeat(args.batch * args.devices - 1)
        batched = central_images(args, own).concatenate(padding).batch(args.batch * args.devices, drop_remainder=True)
        self.found = with_threads(batched.prefetch(2), max(1, args.loader_workers))

    def batches(self):
        """Yield (images, labels, weights), split across the devices; the weight is 1 for an image and 0 for padding of the last batch."""
        unread = set(range(len(self.names)))
        for images, labels, numbers in self.found:
            unread -= set(numbers.numpy().tolist())
            weights = tf.cast(numbers >= 0, tf.float32)
            yield tuple(self.split_among_devices(part) for part in (images, labels, weights))
        self.skipped.update(self.names[number] for number in unread)

    def split_among_devices(self, part):
        def of(replica):
            first = replica % self.devices * self.batch
            return tf.identity(part[first : first + self.batch])

        return values(self.strategy, of)
