"""Inside the image: JPEGs of one colour are read, from the folder and packed, with their folder's label and their file's colour,
normalized.

Prevents labels shifted against images, swapped channels, a mean or deviation of another scale, a corrupt image that ends the run, is
not reported or is reported by the wrong rank, ranks that read the same images, an epoch in the same order as the one before.
"""

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from class_folders import class_folders
from colours import CLASSES, COLOURS, NORMALIZED
from data_tensorflow import Folders, Records, normalized
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import tf

PROGRAMS = Path(__file__).parents[4] / "workloads/imagenet_cnn"
CORRUPT = ["blue/text.jpeg", "red/cut.jpg"]

root = Path(tempfile.mkdtemp())
for name, colour in COLOURS.items():
    (root / "data" / name).mkdir(parents=True)
    for number in range(8):
        pixels = tf.constant(np.full((30, 40 + number, 3), colour), tf.uint8)
        jpeg = tf.io.encode_jpeg(pixels, quality=95).numpy()
        (root / "data" / name / f"{number}.jpg").write_bytes(jpeg)
(root / "data/red/cut.jpg").write_bytes(jpeg[: len(jpeg) * 2 // 3])
(root / "data/blue/text.jpeg").write_text("no image")
(root / "data/blue/notes.txt").write_text("not looked at")

pack = [sys.executable, PROGRAMS / "pack_tfrecord.py"]
out = root / "packed.tfrecord"
report = json.loads(subprocess.run([*pack, root / "data", out], capture_output=True, text=True, check=True).stdout)
assert report == {"path": str(out), "classes": CLASSES, "images": 24, "skipped": CORRUPT}, report
assert sorted(path.name for path in root.glob("packed*")) == ["packed.json", "packed.tfrecord"]
(root / "nothing").mkdir()
nothing = subprocess.run([*pack, root / "nothing", root / "n.tfrecord"], capture_output=True, text=True, check=False)
assert nothing.returncode == 2
assert "holds no JPEG" in nothing.stderr.splitlines()[-1]
assert not list(root.glob("n.*"))


def drawn(source, count):
    """Labels of `count` batches of four; each image must have the colour of its label."""
    labels_drawn = []
    for _ in range(count):
        images, labels = next(source)
        assert images.shape == (4, 16, 16, 3)
        assert images.dtype == tf.uint8
        for image, label in zip(normalized(images).numpy(), labels.numpy().tolist(), strict=True):
            assert np.abs(image.mean((0, 1)) - NORMALIZED[CLASSES[label]]).max() < 0.05, (label, image.mean((0, 1)))
            assert image.std((0, 1)).max() < 1e-3
            labels_drawn.append(label)
    return labels_drawn


names = [name for name, _ in class_folders(root / "data")[1]]
flags = {"image_size": 16, "batch": 4, "devices": 1, "seed": 1}
for workers in (0, 2):
    folder = argparse.Namespace(**flags, loader_workers=workers, data=str(root / "data"))
    packed = argparse.Namespace(**flags, loader_workers=workers, data=str(out))
    orders, skipped, epoch = [], set(), collections.Counter()
    for rank in (0, 1):
        ranks = Alone("/cpu:0")
        ranks.rank, ranks.world_size = rank, 2
        source = Folders(folder, ranks, images=class_folders(root / "data")[1])
        drawn(source, 7)  # beyond the one or two epochs of 13 images less the corrupt ones
        assert source.decoded == 28
        orders.append([source.order(number).numpy().tolist() for number in (0, 1)])
        own = {names[number] for number in orders[-1][0] + orders[-1][1]}
        assert set(source.skipped) <= own & set(CORRUPT), source.skipped
        skipped |= set(source.skipped)

        records = Records(packed, ranks)
        epoch.update(drawn(records, 3))  # one epoch of 12 images
        drawn(records, 4)
        assert records.decoded == 28
        assert records.skipped == CORRUPT
    assert sorted(orders[0][0] + orders[1][0]) == list(range(26)), "the ranks' shares overlap or leave images out"
    assert orders[0][0] != orders[0][1], "the second epoch is in the order of the first"
    assert skipped == set(CORRUPT), skipped
    assert epoch == {0: 8, 1: 8, 2: 8}, epoch
