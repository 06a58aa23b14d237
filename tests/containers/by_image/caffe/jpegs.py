"""Inside the image: JPEGs of one colour, packed and read back, have their folder's label and their file's colour, normalized.

Prevents labels shifted against images, swapped channels, a mean or scale in another order, a corrupt image that ends the run or is
not reported, a name with a space that truncates the list, batches with a single class, an LMDB that other users can't read.
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import caffe
import data_caffe
import numpy as np
from class_folders import read_index
from models_caffe import Net
from PIL import Image

PROGRAMS = Path(__file__).parents[4] / "workloads/imagenet_cnn"
COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}
# (pixel - mean) / 57.63 in the order blue, green, red, computed by hand.
NORMALIZED = {"blue": (2.628, -2.018, -2.146), "green": (-1.796, 2.407, -2.146), "red": (-1.796, -2.018, 2.279)}
CLASSES = sorted(COLOURS)

root = Path(tempfile.mkdtemp())
for name, colour in COLOURS.items():
    (root / "data" / name).mkdir(parents=True)
    for number in range(8):
        Image.new("RGB", (20 + number, 40), colour).save(root / f"data/{name}/n {number}.jpg", quality=95)
whole = (root / "data/red/n 0.jpg").read_bytes()
(root / "data/red/cut.jpg").write_bytes(whole[: len(whole) // 2])
(root / "data/blue/text.jpeg").write_text("no image")
(root / "data/green/end.jpg").write_bytes(b"no image, and yet the end of one\xff\xd9")
(root / "data/blue/notes.txt").write_text("not looked at")

pack = [
    sys.executable,
    str(PROGRAMS / "pack_lmdb.py"),
    str(root / "data"),
    str(root / "packed.lmdb"),
    "--image-size=28",
]
for _ in range(2):  # the second time over the first
    report = json.loads(subprocess.run(pack, stdout=subprocess.PIPE, check=True).stdout.decode())
assert report["classes"] == CLASSES
assert report["images"] == 24
assert report["skipped"] == ["blue/text.jpeg", "green/end.jpg", "red/cut.jpg"]
assert report["size"] == 32
assert sorted(path.name for path in root.glob("packed*")) == ["packed.json", "packed.lmdb"]
assert read_index(root / "packed.lmdb") == {key: report[key] for key in report if key != "path"}
assert (root / "packed.lmdb").stat().st_mode & 0o055 == 0o055
assert (root / "packed.lmdb/lock.mdb").stat().st_mode & 0o066 == 0o066

net = Net("data", nvidia=False)
data_caffe.lmdb(net, root / "packed.lmdb", batch=4, devices=1, image_size=28)
(root / "net.prototxt").write_text(net.text())
built = caffe.Net(str(root / "net.prototxt"), caffe.TRAIN)
epoch, mixed = collections.Counter(), 0
for _ in range(6):
    built.forward()
    images, labels = built.blobs["data"].data, built.blobs["label"].data
    assert images.shape == (4, 3, 28, 28)
    mixed += len(set(labels)) > 1
    for image, label in [(images[row], labels[row]) for row in range(4)]:
        name = CLASSES[int(label)]
        assert np.abs(image.mean((1, 2)) - NORMALIZED[name]).max() < 0.06, (name, image.mean((1, 2)))
        assert image.std((1, 2)).max() < 0.02
        epoch[name] += 1
assert epoch == {"blue": 8, "green": 8, "red": 8}, epoch
assert mixed > 2, "classes come one after the other"

nothing = subprocess.run([*pack[:2], str(root / "data/red"), str(root / "n.lmdb")], stderr=subprocess.PIPE, check=False)
assert nothing.returncode == 2
assert nothing.stderr.count(b"\n") == 1, nothing.stderr
