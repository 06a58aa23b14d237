"""Inside the image, with DALI added: images decoded by DALI are cropped, flipped and labelled like those that Pillow decodes in the workers.

Prevents crops or flips that are drawn differently when the GPU decodes, so that two trainings differ in more than the decoder; labels shifted
against images; a corrupt image that ends the run, is not reported, or shrinks a batch; batches that are lost or repeated when a pipeline ends;
a truncated file decoded half grey; a resize that skips pixels.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from data_torch import ClassFolders, Images
from decode_dali import Decoded, Encoded, EncodedBatch, check_dali
from PIL import Image
from torch.utils.data import DistributedSampler

CPU = torch.device("cpu")
# One level of 255 is 0.017 of a deviation. Pillow rounds to levels twice.
TOLERANCE = 0.03
# Lower bound on the difference between two crops of these gradients; measured: about 0.3.
ANOTHER = 0.15


def gradient(width, height, number):
    """An image without detail, so that only a crop's position matters."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    return Image.fromarray(np.uint8(np.stack([255 * x, 255 * y, 255 * (x + y + number) / 11], axis=2)))


root = Path(tempfile.mkdtemp())
for number in range(9):
    (root / f"class{number % 3}").mkdir(exist_ok=True)
    gradient(120 + 7 * number, 90 + 5 * number, number).save(root / f"class{number % 3}/{number}.jpg", quality=95)


def batches(kind, dataset, workers, count, layout=torch.contiguous_format):
    torch.manual_seed(7)
    sampler = DistributedSampler(dataset, 1, 0, shuffle=True, seed=1, drop_last=True)
    source = kind(dataset, sampler, batch=4, workers=workers, device=CPU, layout=layout)
    return source, [next(source) for _ in range(count)]


# The same crops and flips, with and without workers, beyond the first epoch of two batches.
for workers in (0, 2):
    _, by_pillow = batches(Images, ClassFolders(root, image_size=32), workers, 5)
    source, ahead = batches(Decoded, Encoded(root, image_size=32), workers, 5)
    for (images, labels), (others, other_labels) in zip(by_pillow, ahead, strict=True):
        assert labels.tolist() == other_labels.tolist()
        assert others.shape == (4, 3, 32, 32)
        assert others.dtype == torch.float32
        apart = (images - others).abs().mean((1, 2, 3))
        assert apart.max() < TOLERANCE, apart
        assert (images - others.flip(0)).abs().mean() > ANOTHER, "these images could not tell one crop from another"
    assert source.decoded == 20
    assert source.skipped == set()

# Channels-last holds the same values in another layout.
(_, ((plain, _),)), (_, ((turned, _),)) = (
    batches(Decoded, Encoded(root, image_size=32), 0, 1, layout)
    for layout in (torch.contiguous_format, torch.channels_last)
)
assert turned.is_contiguous(memory_format=torch.channels_last)
assert torch.equal(plain, turned)

# Images that Pillow skips are skipped, other colour spaces are not, and no batch is smaller, lost or repeated because of it.
whole = (root / "class0/0.jpg").read_bytes()
(root / "class0/cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
(root / "class1/text.jpg").write_text("no image")
gradient(100, 80, 1).convert("CMYK").save(root / "class2/print.jpg")
tables = (
    whole.index(b"\xff\xc4") + 5
)  # Huffman tables: the header is readable and the end is intact, but no decoder accepts the file
(root / "class2/hollow.jpg").write_bytes(whole[:tables] + b"\xff" * 16 + whole[tables + 16 :])
for workers in (0, 2):
    by_pillow, _ = batches(Images, ClassFolders(root, image_size=32), workers, 7)
    source, found = batches(Decoded, Encoded(root, image_size=32), workers, 7)
    assert {images.shape for images, _ in found} == {(4, 3, 32, 32)}
    assert source.skipped == by_pillow.skipped == {"class0/cut.jpg", "class1/text.jpg", "class2/hollow.jpg"}, (
        source.skipped
    )

# The label follows when another image takes a place.
pair = Path(tempfile.mkdtemp())
for name in ("a/0", "b/1", "b/2", "b/3"):
    (pair / name).parent.mkdir(exist_ok=True)
    original = "class2/hollow" if name == "a/0" else "class0/0"
    (pair / f"{name}.jpg").write_bytes((root / f"{original}.jpg").read_bytes())
source, found = batches(Decoded, Encoded(pair, image_size=32), 0, 2)
assert source.skipped == {"a/0.jpg"}
assert [labels.tolist() for _, labels in found] == [[1, 1, 1, 1]] * 2

five = EncodedBatch([0, 1, 2, 3, 4], (0, 1, 2, 3, 4), torch.arange(5), (0, 1, 2, 3, 4), []).with_replacements([0, 2, 4])
assert five.jpegs == five.crops == five.names == five.labels.tolist() == [1, 1, 3, 3, 1]
assert five.skipped == [0, 2, 4]

for name in ("b/1", "b/2", "b/3"):
    (pair / f"{name}.jpg").write_bytes((root / "class2/hollow.jpg").read_bytes())
try:
    batches(Decoded, Encoded(pair, image_size=32), 0, 1)
except RuntimeError as error:
    assert "none of the 4 images" in str(error)
else:
    raise AssertionError("a batch without an image came through")

# A resize reads all pixels that become one.
rng = np.random.default_rng(1)
for width, height in ((64, 48), (700, 500), (3000, 40)):
    noise = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    folder = Path(tempfile.mkdtemp())
    for name in ("a/0.jpg", "a/1.jpg", "a/2.jpg", "b/3.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        noise.save(folder / name, quality=95)
    (_, ((by_pillow, _),)), (_, ((by_dali, _),)) = (
        batches(kind, reader(folder, image_size=32), 0, 1)
        for kind, reader in ((Images, ClassFolders), (Decoded, Encoded))
    )
    assert (by_pillow - by_dali).abs().mean() < TOLERANCE, (width, height)

check_dali()
sys.modules["nvidia.dali"] = None  # as if not installed: one sentence, exit code 2
try:
    check_dali()
except SystemExit as ended:
    assert ended.code == 2
else:
    raise AssertionError("DALI was found where there is none")
