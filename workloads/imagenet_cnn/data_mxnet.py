"""Real images for the MXNet program: JPEGs from a RecordIO file.

MXNet's own C++ iterator decodes, augments (random resized crop, flip, as for ImageNet training) and normalizes them.
It ends the process if an image does not decode, so `pack_recordio` leaves such images out and records their names.
"""

from pathlib import Path

from class_folders import MEAN, STD, read_index
from with_mxnet.shim import mx

NORMALIZATION = dict(zip(("mean_r", "mean_g", "mean_b", "std_r", "std_g", "std_b"), MEAN + STD, strict=True))


class Records:
    """Endless batches of a rank's share of a RecordIO file, epoch after epoch."""

    def __init__(self, path, shape, *, seed, rank, world_size, workers, contexts, dtype):
        batch, *image_shape = shape
        self.contexts, self.dtype = contexts, dtype
        self.decoded = 0
        self.skipped = read_index(path)["skipped"]
        self.iterator = mx.io.ImageRecordIter(
            path_imgrec=str(path),
            path_imgidx=str(Path(path).with_suffix(".idx")),
            data_shape=tuple(image_shape),
            batch_size=batch,
            shuffle=True,
            seed=seed,
            seed_aug=seed + rank,
            num_parts=world_size,
            part_index=rank,
            preprocess_threads=max(1, workers),
            # 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, as in `data_torch`.
            random_resized_crop=True,
            min_random_area=0.08,
            max_random_area=1.0,
            min_aspect_ratio=3 / 4,
            max_aspect_ratio=4 / 3,
            rand_mirror=True,
            verbose=False,
            **NORMALIZATION,
        )

    def __next__(self):
        try:
            batch = self.iterator.next()
        except StopIteration:
            self.iterator.reset()
            batch = self.iterator.next()
        images, labels = batch.data[0], batch.label[0]
        self.decoded += len(labels)
        return split(images, self.contexts, self.dtype), split(labels, self.contexts)


def split(array, contexts, dtype="float32"):
    return [part.astype(dtype, copy=False) for part in mx.gluon.utils.split_and_load(array, contexts)]
