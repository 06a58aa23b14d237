"""Shared by the image inference programs: their argument checks, and the images used for inference, fine-tuning and calibration.

Standard library and syntax of Python 3.6 only at import.
"""

from pathlib import Path

import inference
from arguments import refuse
from class_folders import class_folders, split, spread


def check(args, *, int8):
    """Refuse options that no image inference program supports; `int8` says why int8 is CPU-only, and what to request instead."""
    inference.check(args)
    if (args.precision, args.device) == ("int8", "gpu"):
        refuse("--precision=int8 needs a CPU: " + int8)
    if args.data != "synthetic" and not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; give one that holds one folder of JPEGs a class")


class Classifier(inference.OneByOne):
    """A network's images; `workloads/inference.py` documents the methods.

    A program also implements `decode(images)`: from `images`, (path below --data, label), it returns the central squares as bytes, their labels,
    and the names of images that do not decode; those have neither square nor label.
    """

    def __init__(self, args):
        self.args, self.overcommits = args, args.device == "cpu"
        self.decoded, self.skipped = 0, set()
        if args.data == "synthetic":
            return
        classes, self.training, self.held_out = self.list_images()
        if len(classes) > args.num_classes:
            refuse(f"{args.data} has {len(classes)} classes, more than --num-classes={args.num_classes}")
        if not self.held_out:
            refuse(f"{args.data} has no class of five JPEGs, so that none is left for inference; give more")
        if args.fit and len(self.training) < inference.FIT_BATCH:
            few = f"{args.data} has {len(self.training)} JPEGs to train on"
            refuse(f"{few}, fewer than a batch of {inference.FIT_BATCH}; give more")

    def list_images(self):
        """Return the class names, and the training and validation images of --data."""
        classes, images = class_folders(self.args.data)
        return (classes, *split(images))

    def library(self, most):
        if self.args.data == "synthetic":
            return self.synthetic(most), None
        return self.decode_central(spread(self.held_out, most))

    def calibration(self):
        """Training images, prepared like the library's, to calibrate int8 on; no figure is measured on them."""
        if self.args.data == "synthetic":
            return self.synthetic(inference.CALIBRATION)
        return self.decode_central(spread(self.training, inference.CALIBRATION))[0]

    def synthetic(self, count):
        from synthetic import samples

        shape = {"image_size": self.args.image_size, "num_classes": self.args.num_classes}
        return samples(self.args.seed, first=0, count=count, **shape)[0]

    def decode_central(self, images):
        """Decode the central squares of `images`, and count decoded and skipped images."""
        pixels, labels, skipped = self.decode(images)
        if not len(labels):
            refuse(f"none of {len(images)} JPEGs in {self.args.data} decodes; give a folder of valid images")
        self.decoded += len(labels)
        self.skipped.update(skipped)
        return pixels, labels
