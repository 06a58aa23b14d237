"""Inside the image: JPEGs of one colour are read with their folder's label and their file's colour, normalized.

Prevents labels shifted against images, swapped channels, a mean or deviation of another scale, a corrupt image that ends the run or
is not reported, ranks that read the same images, loader processes that delay the exit.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from colours import CLASSES, COLOURS, NORMALIZED
from data_torch import ClassFolders, Images
from PIL import Image
from torch.utils.data import DistributedSampler

root = Path(tempfile.mkdtemp())
for name, colour in COLOURS.items():
    (root / name).mkdir()
    for number in range(8):
        Image.new("RGB", (40 + number, 30), colour).save(root / name / f"{number}.jpg", quality=95)
whole = (root / "red/0.jpg").read_bytes()
(root / "red/cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
(root / "blue/text.jpeg").write_text("no image")
(root / "blue/notes.txt").write_text("not looked at")

dataset = ClassFolders(root, image_size=16)
assert dataset.classes == CLASSES
assert len(dataset) == 26
skipped = set()
for workers in (0, 2):
    seen = []
    for rank in (0, 1):
        sampler = DistributedSampler(dataset, 2, rank, shuffle=True, seed=1, drop_last=True)
        layout = torch.contiguous_format
        batches = Images(dataset, sampler, batch=4, workers=workers, device=torch.device("cpu"), layout=layout)
        seen += list(sampler)
        for _ in range(7):  # beyond one epoch of 13 images, so that each rank starts a second
            images, labels = next(batches)
            assert images.shape == (4, 3, 16, 16)
            assert images.dtype == torch.float32
            for image, label in zip(images, labels.tolist(), strict=True):
                expected = torch.tensor(NORMALIZED[CLASSES[label]])
                assert (image.mean((1, 2)) - expected).abs().max() < 0.05, (label, image.mean((1, 2)))
                assert image.std((1, 2)).max() < 1e-3
        assert batches.decoded == 28
        skipped |= batches.skipped
    assert sorted(seen) == list(range(26)), "the ranks' shares overlap or leave images out"
assert skipped == {"red/cut.jpg", "blue/text.jpeg"}, skipped

# Loaders that pin memory wait at interpreter exit for each live process; here, the last exit handler prints how many are left.
ENDS = f"""
import atexit, multiprocessing, torch
atexit.register(lambda: print(len(multiprocessing.active_children())))
from data_torch import *
from torch.utils.data import DistributedSampler
dataset = ClassFolders({str(root)!r}, image_size=16)
sampler = DistributedSampler(dataset, 1, 0, drop_last=True)
cpu = {{"device": torch.device("cpu"), "layout": torch.contiguous_format}}
trained_on = Images(dataset, sampler, batch=4, workers=2, **cpu)
held_out = Validation({str(root)!r}, dataset.images, image_size=16, batch=4, workers=2, rank=0, world_size=1, **cpu)
next(trained_on)
print(len(multiprocessing.active_children()))
"""
ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=True)
assert ended.stdout.split() == ["4", "0"], ended
