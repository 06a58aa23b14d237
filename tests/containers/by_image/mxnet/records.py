"""Inside the image: JPEGs of one colour, packed and read back, have their folder's label and their file's colour, normalized.

Prevents labels shifted against images, swapped channels, a mean or deviation of another scale, a corrupt image that ends the run or
is not reported, ranks that read the same part of the file or see only some classes.
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from colours import CLASSES, JPEGS, NORMALIZED
from data_mxnet import Records
from with_mxnet.shim import mx

PROGRAMS = Path(__file__).parents[4] / "workloads/imagenet_cnn"

root = Path(tempfile.mkdtemp())
for name, jpeg in JPEGS.items():
    (root / "data" / name).mkdir(parents=True)
    for number in range(8):
        (root / "data" / name / f"{number}.jpg").write_bytes(jpeg)
(root / "data/red/cut.jpg").write_bytes(JPEGS["red"][:250])
(root / "data/blue/text.jpeg").write_text("no image")
(root / "data/blue/notes.txt").write_text("not looked at")

pack = [sys.executable, PROGRAMS / "pack_recordio.py", root / "data", root / "packed.rec"]
for _ in range(2):  # the second time over the first
    report = json.loads(subprocess.run(pack, capture_output=True, text=True, check=True).stdout)
assert report["classes"] == CLASSES
assert report["images"] == 24
assert report["skipped"] == ["blue/text.jpeg", "red/cut.jpg"]
assert sorted(path.name for path in root.glob("packed*")) == ["packed.idx", "packed.json", "packed.rec"]

epoch = collections.Counter()
for rank in (0, 1):
    share = {"rank": rank, "world_size": 2, "workers": 2, "contexts": [mx.cpu()], "dtype": "float32"}
    records = Records(root / "packed.rec", (4, 3, 16, 16), seed=1, **share)
    own = collections.Counter()
    for batch in range(7):  # beyond one epoch of 12 images, so that each rank starts a third
        (images,), (labels,) = next(records)
        assert images.shape == (4, 3, 16, 16)
        for image, label in zip(images.asnumpy(), labels.asnumpy(), strict=True):
            name = CLASSES[int(label)]
            assert np.abs(image.mean((1, 2)) - NORMALIZED[name]).max() < 0.05, (name, image.mean((1, 2)))
            assert image.std((1, 2)).max() < 1e-3
            if batch < 3:
                own[name] += 1
    assert records.decoded == 28
    assert records.skipped == ["blue/text.jpeg", "red/cut.jpg"]
    assert len(own) == 3, f"rank {rank} sees {own} only"
    epoch += own
assert epoch == {"blue": 8, "green": 8, "red": 8}, epoch

nothing = subprocess.run(
    [*pack[:2], root / "data/red/none", root / "n.rec"], capture_output=True, text=True, check=False
)
assert nothing.returncode == 2
assert nothing.stderr.count("\n") == 1
