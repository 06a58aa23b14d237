"""Shared by the packers: the command line and the images' order. Packers of single files also share `pack`, which renames complete files only.

Standard library and syntax of Python 3.6 only. JPEGs that are truncated or do not decode are left out and listed in `skipped`. Progress goes
to standard error, one JSON line at the end to standard output.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from arguments import refuse
from class_folders import class_folders, is_whole

PROGRESS_EVERY = 500


def command_line(description):
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    return parser


def list_images(args, suffix):
    """Return the class names, and the images in packing order; refuse an OUT with another suffix."""
    if args.out.suffix != suffix:
        refuse(f"{args.out} does not end with {suffix}; give a name that does")
    if not args.folder.is_dir():
        refuse(f"{args.folder} is not a folder; give one that holds one folder of JPEGs a class")
    classes, images = class_folders(args.folder)
    # Readers take a stretch or a window of the file at a time; in folder order, it would hold few classes.
    random.Random(0).shuffle(images)
    return classes, images


def refuse_empty(args):
    refuse(f"{args.folder} holds no JPEG in class folders that decodes (CLASS/NAME.jpg); give a folder that does")


def pack(description, *, suffixes, decodes, open_writer):
    """Parse DIR and OUT from the command line and pack DIR into OUT, with OUT.json {classes, images, skipped} next to it.

    suffixes: of all files written, including `.json`, with OUT's own last: if OUT exists, the others are complete.
    decodes: whether the framework decodes these JPEG bytes completely.
    open_writer: takes the paths to write, by suffix; returns an object with `write(number, jpeg, label, name)` and `close()`.
    """
    args = command_line(description).parse_args()
    classes, images = list_images(args, suffixes[-1])
    partial = {suffix: args.out.with_suffix(f".partial{suffix}") for suffix in suffixes}
    writer = open_writer(partial)
    packed, skipped = 0, []
    for seen, (name, label) in enumerate(images, start=1):
        jpeg = (args.folder / name).read_bytes()
        if is_whole(jpeg) and decodes(jpeg):
            writer.write(packed, jpeg, label, name)
            packed += 1
        else:
            skipped.append(name)
        if seen % PROGRESS_EVERY == 0 or seen == len(images):
            print(f"{seen} of {len(images)} images, {len(skipped)} left out", file=sys.stderr, flush=True)
    writer.close()
    index = {"classes": classes, "images": packed, "skipped": sorted(skipped)}
    partial[".json"].write_text(json.dumps(index) + "\n", encoding="utf-8")
    if not packed:
        for path in partial.values():
            path.unlink()
        refuse_empty(args)
    for suffix in suffixes:
        partial[suffix].rename(args.out.with_suffix(suffix))
    print(json.dumps({"path": str(args.out), **index}))
