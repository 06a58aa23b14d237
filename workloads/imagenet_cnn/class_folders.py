"""A data set on disk: one folder a class, JPEGs below it. Standard library only; used by the loader and by `pack_recordio`."""

import os
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg")
# A JPEG ends with this marker (ITU T.81, B.1.1.3). Decoders fill what a truncated file lacks with grey, in silence.
END_OF_IMAGE = b"\xff\xd9"


def class_folders(root):
    """List ``(classes, images)`` of `root` in a fixed order; an image is ``(path relative to root, class index)``.

    Links are followed, so that a data set may be made of links to another.
    """
    classes, images = [], []
    for folder in sorted(entry for entry in Path(root).iterdir() if entry.is_dir()):
        found = sorted(
            f"{parent}/{name}"
            for parent, _, names in os.walk(folder, followlinks=True)
            for name in names
            if name.lower().endswith(SUFFIXES)
        )
        if found:
            images += [(os.path.relpath(path, root), len(classes)) for path in found]
            classes.append(folder.name)
    return classes, images


def is_whole(jpeg):
    """Whether the bytes of a JPEG reach to its end marker; padding or a comment of the camera may follow it."""
    return END_OF_IMAGE in jpeg[-1024:]
