"""The synthetic data set, the same in every framework except Caffe's training: sample number i depends only on the seed and i.

Images are standard normal noise, labels uniform. Each rank takes its own stretch of the global batch, so that one device with a batch
of 2b and two devices with b each train on the same samples.
"""

import numpy as np

# First sample of the batch on which all ranks compute the same loss; no rank trains on it.
SHARED = 1 << 32


def samples(seed, *, first, count, image_size, num_classes):
    """Draw `count` samples from number `first`: images (count, 3, image_size, image_size) in fp32, labels (count,) in int64."""
    images = np.empty((count, 3, image_size, image_size), np.float32)
    labels = np.empty(count, np.int64)
    for row in range(count):
        random = np.random.default_rng((seed, first + row))
        random.standard_normal(dtype=np.float32, out=images[row])
        labels[row] = random.integers(num_classes)
    return images, labels
