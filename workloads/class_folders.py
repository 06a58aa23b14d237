"""A data set on disk: one folder a class, JPEGs below it. Standard library only; used by all loaders and packers.

It also says what all frameworks validate on, which part of an image they train on and which they then look at, so that accuracies can be held
together.
"""

import contextlib
import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path

from arguments import refuse

# Mean and standard deviation of ImageNet's training images, by channel (red, green, blue), for pixels from 0 to 255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
SUFFIXES = (".jpg", ".jpeg")
# A JPEG ends with this marker (ITU T.81, B.1.1.3). Decoders fill what a truncated file lacks with grey, in silence.
END_OF_IMAGE = b"\xff\xd9"
# Every so many images of a class is for validation.
VALIDATION_EVERY = 5
# Of the shorter side: 224 of 256 pixels, as ImageNet classifiers have been validated since AlexNet.
CENTRAL = 0.875


@contextlib.contextmanager
def whole(out):
    """A folder to write a data set to that takes the name `out` at the end; what was not written to its end is removed. Refuses one in use."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        refuse(f"{out} exists and is not an empty folder; give a new one")
    draft = out.with_name(f"{out.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        yield draft
        if out.exists():
            out.rmdir()
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def class_folders(root):
    """List ``(classes, images)`` of `root` in a fixed order; an image is ``(path relative to root, class index)``.

    Links are followed, so that a data set may be made of links to another.
    """
    classes, images = [], []
    for folder in sorted(entry for entry in Path(root).iterdir() if entry.is_dir()):
        found = sorted(path for path in _files(folder) if path.lower().endswith(SUFFIXES))
        if found:
            images += [(os.path.relpath(path, root), len(classes)) for path in found]
            classes.append(folder.name)
    return classes, images


def _files(folder):
    """All files below a folder, each folder once: links that lead back up would be followed for ever."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = [] if real in seen else sorted(folders)
        if real not in seen:
            yield from (f"{parent}/{name}" for name in names)
        seen.add(real)


def split(images):
    """Divide what `class_folders` lists into ``(training, validation)``, both in its order, whatever the framework.

    Of each class every fifth image is for validation: its 5th, 10th, ... by sorted name. No draw, so that nobody needs the same random
    numbers; a class of fewer than five images is trained on only.
    """
    parts, seen = ([], []), Counter()
    for name, label in images:
        seen[label] += 1
        parts[seen[label] % VALIDATION_EVERY == 0].append((name, label))
    return parts


def share(samples, *, rank, world_size):
    """The samples of a rank: each in exactly one share, none repeated, so that shares may differ by one."""
    return samples[rank::world_size]


def spread(samples, most):
    """At most so many of them, evenly spread, so that all classes are among them."""
    count = min(most, len(samples))
    return [samples[number * len(samples) // count] for number in range(count)]


def random_crop(random, width, height):
    """Draw 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, by a generator of NumPy's: left, top, width and height in pixels.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842), as in `data_torch.draw`.
    """
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(random.integers(width - w + 1)), int(random.integers(height - h + 1)), w, h
    return 0, 0, width, height


def central_square(width, height):
    """What is looked at of an image when nothing is augmented, in whole pixels: ``(left, top, side)``.

    The square in its middle with 87.5 % of its shorter side, which is then resized to the network's input in one step.
    """
    side = max(1, round(CENTRAL * min(width, height)))
    return (width - side) // 2, (height - side) // 2, side


def is_whole(jpeg):
    """Whether the bytes of a JPEG reach to its end marker; padding or a comment of the camera may follow it."""
    return END_OF_IMAGE in jpeg[-1024:]


def read_index(packed):
    """Read what a packer wrote beside its file: {"classes", "images", "skipped", ...}."""
    return json.loads(Path(packed).with_suffix(".json").read_text(encoding="utf-8"))


def check_fit(args, *, classes, images, devices):
    """Refuse a data set that does not fit the network or the batch: so many classes, so many images that `devices` train on."""
    if classes > args.num_classes:
        refuse(f"{args.data} has {classes} classes, --num-classes={args.num_classes} is less")
    if images < args.batch * devices:
        batches = f"{devices} batches" if devices > 1 else "a batch"
        refuse(f"{args.data} holds {images} images to train on, too few for {batches} of {args.batch}; ask for less")
