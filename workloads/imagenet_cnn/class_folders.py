"""A data set on disk: one folder a class, JPEGs below it. Standard library only; used by all loaders and packers.

It also says what all frameworks validate on, and which part of an image they then look at, so that accuracies can be held together.
"""

import os
from collections import Counter
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg")
# A JPEG ends with this marker (ITU T.81, B.1.1.3). Decoders fill what a truncated file lacks with grey, in silence.
END_OF_IMAGE = b"\xff\xd9"
# Every so many images of a class is for validation.
VALIDATION_EVERY = 5
# Of the shorter side: 224 of 256 pixels, as ImageNet classifiers have been validated since AlexNet.
CENTRAL = 0.875


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


def central_square(width, height):
    """What is looked at of an image when nothing is augmented, in whole pixels: ``(left, top, side)``.

    The square in its middle with 87.5 % of its shorter side, which is then resized to the network's input in one step.
    """
    side = max(1, round(CENTRAL * min(width, height)))
    return (width - side) // 2, (height - side) // 2, side


def is_whole(jpeg):
    """Whether the bytes of a JPEG reach to its end marker; padding or a comment of the camera may follow it."""
    return END_OF_IMAGE in jpeg[-1024:]
