"""Writes the published 32×32 ImageNet as class folders of JPEGs, the layout that the programs and the packers read.

    python3 import_imagenet32.py FOLDER OUT

FOLDER contains train_data_batch_1.npz to train_data_batch_10.npz and val_data.npz as published with "A Downsampled Variant of ImageNet as an
Alternative to the CIFAR datasets" (Chrabaszcz, Loshchilov and Hutter, https://arxiv.org/abs/1707.08819): `data`, (images, 3072) in uint8,
all red, then all green, then all blue values of an image, row by row; `labels`, (images,), 1 to 1000. OUT/train and OUT/val get one folder
per class, 0001 to 1000. JPEG loses a little even at this quality (100) without chroma subsampling.

Needs NumPy and pillow. Progress goes to standard error, one JSON line at the end to standard output.
"""

import argparse
import json
import sys
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse
from class_folders import new_folder

SIDE, CLASSES, BATCHES, QUALITY = 32, 1000, 10, 100
VALUES = 3 * SIDE * SIDE
FILES = {
    "train": tuple(f"train_data_batch_{number}.npz" for number in range(1, BATCHES + 1)),
    "val": ("val_data.npz",),
}


def read(path):
    """Return (images, labels) of a file: (images, 32, 32, 3) in uint8, and (images,) from 1 to 1000."""
    try:
        with np.load(path) as arrays:
            data, labels = arrays["data"], np.asarray(arrays["labels"])
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        refuse(f"{path} is no npz file with data and labels ({error}); give the published files of ImageNet at 32x32")
    if data.ndim != 2 or data.shape[1] != VALUES or data.dtype != np.uint8 or labels.shape != data.shape[:1]:
        refuse(
            f"{path} has data of shape {data.shape} in {data.dtype} and {labels.size} labels, not (images, {VALUES}) in uint8 and a label each; "
            "give the files of 32x32 pixels"
        )
    if labels.size and not (np.issubdtype(labels.dtype, np.integer) and labels.min() >= 1 and labels.max() <= CLASSES):
        refuse(f"{path} has labels that are not whole numbers of 1 to {CLASSES}; give the published files")
    return data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels


def write(source, out):
    """Write all images of FOLDER. Returns the number of images in each part."""
    missing = [name for names in FILES.values() for name in names if not (source / name).is_file()]
    if missing:
        others = f" and {len(missing) - 1} more" if missing[1:] else ""
        refuse(f"{source} has no {missing[0]}{others}; give the folder with the published files of ImageNet at 32x32")
    found = {}
    for part, names in FILES.items():
        found[part] = 0
        for name in names:
            images, labels = read(source / name)
            for image, label in zip(images, labels):  # noqa: B905 - Python 3.8
                folder = out / part / f"{int(label):04}"
                folder.mkdir(parents=True, exist_ok=True)
                found[part] += 1
                path = folder / f"{found[part]:07}.jpg"
                Image.fromarray(np.ascontiguousarray(image)).save(path, quality=QUALITY, subsampling=0)
            print(f"{name}: {found[part]} images of {part}", file=sys.stderr, flush=True)
    return found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="folder of the published npz files")
    parser.add_argument("out", type=Path, help="new or empty folder to write to")
    args = parser.parse_args(argv)
    with new_folder(args.out) as draft:
        found = write(args.folder, draft)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
