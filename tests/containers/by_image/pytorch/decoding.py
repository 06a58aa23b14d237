"""Inside the image: what a GPU would decode is cut, flipped and labelled as what Pillow decodes in the workers; Pillow stands in for nvJPEG.

Prevents crops or flips that are drawn otherwise when the GPU decodes, so that two trainings differ in more than where; labels shifted against
images; a corrupt image that ends the run, is not named, or leaves a batch smaller; one that nvJPEG alone refuses and that is lost; a file cut
short that comes out half grey; a resize that skips pixels; a thread that outlives the training, or whose error nobody hears of.
"""

import io
import tempfile
from pathlib import Path

import numpy as np
import torch
from data_torch import ClassFolders, Crop, Images
from decode_torch import Ahead, Decoded, Encoded, cut, filled, nvjpeg
from PIL import Image
from torch.utils.data import DistributedSampler

CPU = torch.device("cpu")
# One level of 255 is 0.017 of a deviation. Pillow rounds to levels twice, and looks beyond the edges of a crop.
TOLERANCE = 0.03
# How far apart two crops of these gradients are; measured, some 0.3.
ANOTHER = 0.15


def gradient(width, height, number):
    """A photograph without detail, so that only where a crop lies makes a difference."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    return Image.fromarray(np.uint8(np.stack([255 * x, 255 * y, 255 * (x + y + number) / 11], axis=2)))


def stand_in(jpegs):
    """Decode all or none, no CMYK, and make grey of what is missing at the end, as nvJPEG through torchvision does."""
    try:
        images = [Image.open(io.BytesIO(jpeg.numpy().tobytes() + b"\xff\xd9")) for jpeg in jpegs]
        found = [torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1) for image in images]
    except OSError as error:
        raise RuntimeError("Error while decoding JPEG images") from error
    if "CMYK" in {image.mode for image in images}:
        raise RuntimeError("Error while decoding JPEG images")
    return found


root = Path(tempfile.mkdtemp())
for number in range(9):
    (root / f"class{number % 3}").mkdir(exist_ok=True)
    gradient(120 + 7 * number, 90 + 5 * number, number).save(root / f"class{number % 3}/{number}.jpg", quality=95)


def batches(kind, dataset, workers, count, **options):
    torch.manual_seed(7)
    sampler = DistributedSampler(dataset, 1, 0, shuffle=True, seed=1, drop_last=True)
    layout = torch.contiguous_format
    source = kind(dataset, sampler, batch=4, workers=workers, device=CPU, layout=layout, **options)
    found = [next(source) for _ in range(count)]
    if kind is Decoded:
        source.batches.close()
        assert not source.batches.thread.is_alive()
    return source, found


# The same crops and flips, with workers and without, beyond the first epoch of two batches.
for workers in (0, 2):
    _, by_pillow = batches(Images, ClassFolders(root, image_size=32), workers, 5)
    source, ahead = batches(Decoded, Encoded(root, image_size=32), workers, 5, decode=stand_in)
    for (images, labels), (others, other_labels) in zip(by_pillow, ahead, strict=True):
        assert labels.tolist() == other_labels.tolist()
        assert others.shape == (4, 3, 32, 32)
        assert others.dtype == torch.float32
        apart = (images - others).abs().mean((1, 2, 3))
        assert apart.max() < TOLERANCE, apart
        assert (images - others.flip(0)).abs().mean() > ANOTHER, "these images could not tell one crop from another"
    assert source.decoded == 20
    assert source.skipped == set()

# What Pillow would skip is skipped, what only nvJPEG refuses is not, and no batch is smaller for it.
whole = (root / "class0/0.jpg").read_bytes()
(root / "class0/cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
(root / "class1/text.jpg").write_text("no image")
gradient(100, 80, 1).convert("CMYK").save(root / "class2/print.jpg")
tables = (
    whole.index(b"\xff\xc4") + 5
)  # of Huffman codes: its header can be read, it ends as it should, and no decoder takes it
(root / "class2/hollow.jpg").write_bytes(whole[:tables] + b"\xff" * 16 + whole[tables + 16 :])
for workers in (0, 2):
    by_pillow, _ = batches(Images, ClassFolders(root, image_size=32), workers, 7)
    source, found = batches(Decoded, Encoded(root, image_size=32), workers, 7, decode=stand_in)
    assert {images.shape for images, _ in found} == {(4, 3, 32, 32)}
    assert source.skipped == by_pillow.skipped == {"class0/cut.jpg", "class1/text.jpg", "class2/hollow.jpg"}, (
        source.skipped
    )

# A place that goes to another image goes to its label too.
pair = Path(tempfile.mkdtemp())
for name in ("a/0", "b/1", "b/2", "b/3"):
    (pair / name).parent.mkdir(exist_ok=True)
    original = "class2/hollow" if name == "a/0" else "class0/0"
    (pair / f"{name}.jpg").write_bytes((root / f"{original}.jpg").read_bytes())
source, found = batches(Decoded, Encoded(pair, image_size=32), 0, 2, decode=stand_in)
assert source.skipped == {"a/0.jpg"}
assert [labels.tolist() for _, labels in found] == [[1, 1, 1, 1]] * 2

assert filled([None, 1, None, 2, None]) == [1, 1, 3, 3, 1]
try:
    filled([None, None])
except RuntimeError as error:
    assert "none of the 2 images" in str(error)
else:
    raise AssertionError("a batch without an image came through")

# A resize looks at all pixels that become one, also where there are so many that it is done in steps.
rng = np.random.default_rng(1)
for width, height in ((64, 48), (700, 500), (3000, 40)):
    noise = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    pixels = torch.from_numpy(np.array(noise)).permute(2, 0, 1)
    crop = Crop(0, 0, width, height, flip=False)
    expected = np.array(noise.resize((32, 32), Image.Resampling.BILINEAR), dtype=np.float32).transpose(2, 0, 1)
    off = np.abs(cut(pixels, crop, 32)[0].numpy() - expected)
    assert off.mean() < (1 if max(width, height) <= 8 * 32 else 4), (width, height, off.mean())

# An error of the thread is the training's.
torch.manual_seed(1)


def fails():
    raise RuntimeError("no batch")


try:
    next(Ahead(fails, device=CPU))
except RuntimeError as error:
    assert str(error) == "no batch"
else:
    raise AssertionError("the error of the thread was lost")

# This image has no torchvision: one sentence, exit code 2.
try:
    nvjpeg(CPU)
except SystemExit as ended:
    assert ended.code == 2
else:
    raise AssertionError("a decoder was found where there is none")
