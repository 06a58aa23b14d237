"""A data set on disk: one folder per class with JPEGs below it. Standard library only; used by the loaders and packers of images.

It also defines for all frameworks which images they validate on, which part of an image they train on and which part they validate on, so
that accuracies are comparable.
"""

import contextlib
import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path

from arguments import refuse

# Mean and standard deviation of ImageNet's training images per channel (red, green, blue), for pixels from 0 to 255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
SUFFIXES = (".jpg", ".jpeg")
# A JPEG ends with this marker (ITU T.81, B.1.1.3). Decoders silently fill the missing part of a truncated file with grey.
END_OF_IMAGE = b"\xff\xd9"
# Every `VALIDATION_EVERY`th image of a class is for validation.
VALIDATION_EVERY = 5
# Share of the shorter side: 224 of 256 pixels, as ImageNet classifiers have been validated since AlexNet.
CENTRAL = 0.875


@contextlib.contextmanager
def new_folder(out):
    """Context: path for a draft folder, renamed to `out` on success, removed on failure. Refuses an existing `out` unless it is an empty folder."""
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

    Follows links, so that a data set can consist of links to another.
    """
    classes, images = [], []
    for folder in sorted(entry for entry in Path(root).iterdir() if entry.is_dir()):
        found = sorted(path for path in _files(folder) if path.lower().endswith(SUFFIXES))
        if found:
            images += [(os.path.relpath(path, root), len(classes)) for path in found]
            classes.append(folder.name)
    return classes, images


def _files(folder):
    """All files below a folder, visiting each folder once, so that links to a parent folder do not loop."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = [] if real in seen else sorted(folders)
        if real not in seen:
            yield from (f"{parent}/{name}" for name in names)
        seen.add(real)


def split(images):
    """Split the images of `class_folders` into ``(training, validation)``, both in its order, the same for every framework.

    Every fifth image of a class is for validation: its 5th, 10th, ... by sorted name. The split is not random, so that frameworks need not
    share random numbers; a class of fewer than five images is only trained on.
    """
    parts, seen = ([], []), Counter()
    for name, label in images:
        seen[label] += 1
        parts[seen[label] % VALIDATION_EVERY == 0].append((name, label))
    return parts


def share(samples, *, rank, world_size):
    """The samples of a rank. Each sample is in exactly one share and none is repeated, so the sizes of shares may differ by one."""
    return samples[rank::world_size]


def spread(samples, most):
    """At most `most` of the samples, evenly spaced, so that classes, which are consecutive, keep their proportions."""
    count = min(most, len(samples))
    return [samples[number * len(samples) // count] for number in range(count)]


def random_crop(random, width, height):
    """Draw 8 to 100 % of the area at an aspect ratio of 3/4 to 4/3, with a NumPy generator: left, top, width and height in pixels.

    Szegedy et al., Going Deeper with Convolutions, section 6 (https://arxiv.org/abs/1409.4842), as in `data_torch.draw_crop`.
    """
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(random.integers(width - w + 1)), int(random.integers(height - h + 1)), w, h
    return 0, 0, width, height


def central_square(width, height):
    """The part of an image that is used without augmentation: ``(left, top, side)`` in whole pixels.

    The central square with 87.5 % of the shorter side, which is then resized to the network's input in one step.
    """
    side = max(1, round(CENTRAL * min(width, height)))
    return (width - side) // 2, (height - side) // 2, side


def is_whole(jpeg):
    """Whether a JPEG has its end marker in its last 1024 bytes; padding or a camera's comment may follow it."""
    return END_OF_IMAGE in jpeg[-1024:]


def read_index(packed):
    """Read the index that a packer wrote next to its file: {"classes", "images", "skipped", ...}."""
    return json.loads(Path(packed).with_suffix(".json").read_text(encoding="utf-8"))


def check_fit(args, *, classes, images, devices):
    """Refuse a data set with more classes than the network, or with fewer than a batch of training images for each of `devices`."""
    if classes > args.num_classes:
        refuse(f"{args.data} has {classes} classes, more than --num-classes={args.num_classes}")
    if images < args.batch * devices:
        batches = f"{devices} batches" if devices > 1 else "a batch"
        refuse(f"{args.data} holds {images} images to train on, too few for {batches} of {args.batch}; ask for less")
