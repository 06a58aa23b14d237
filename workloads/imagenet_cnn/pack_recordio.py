"""Packs a folder of class folders with JPEGs into a RecordIO file for MXNet's C++ iterator.

    python3 pack_recordio.py DIR OUT.rec

Writes OUT.rec, OUT.idx and OUT.json {classes, images, skipped}. Labels are positions in the sorted class names. A JPEG that is cut
short or does not decode is left out and named in `skipped`: the iterator would end the training process at it. Progress goes to
standard error, one JSON line at the end to standard output.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from arguments import refuse
from class_folders import class_folders, is_whole
from mxnet_shim import mx

PROGRESS_EVERY = 500


def decodes(jpeg):
    """Whether MXNet's own decoder reads these bytes to the end."""
    if not is_whole(jpeg):
        return False
    try:
        return mx.image.imdecode(jpeg).shape[2] == 3
    except (mx.MXNetError, ValueError):
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    if args.out.suffix != ".rec":
        refuse(f"{args.out} does not end with .rec; give a name that does")
    if not args.folder.is_dir():
        refuse(f"{args.folder} is not a folder; give one that holds one folder of JPEGs a class")
    classes, images = class_folders(args.folder)
    # The iterator gives each rank one stretch of the file: in the folders' order, ranks would see different classes.
    random.Random(0).shuffle(images)

    # Written under other names and renamed at the end, the .rec last: where there is one, its index is complete.
    suffixes = (".idx", ".json", ".rec")
    partial = {suffix: args.out.with_suffix(f".partial{suffix}") for suffix in suffixes}
    writer = mx.recordio.MXIndexedRecordIO(str(partial[".idx"]), str(partial[".rec"]), "w")
    packed, skipped = 0, []
    for seen, (name, label) in enumerate(images, start=1):
        jpeg = (args.folder / name).read_bytes()
        if decodes(jpeg):
            writer.write_idx(packed, mx.recordio.pack(mx.recordio.IRHeader(0, label, packed, 0), jpeg))
            packed += 1
        else:
            skipped.append(name)
        if seen % PROGRESS_EVERY == 0 or seen == len(images):
            print(f"{seen} of {len(images)} images, {len(skipped)} left out", file=sys.stderr, flush=True)
    writer.close()
    index = {"classes": classes, "images": packed, "skipped": sorted(skipped)}
    if not packed:
        partial[".idx"].unlink()
        partial[".rec"].unlink()
        refuse(f"{args.folder} holds no JPEG in class folders that decodes (CLASS/NAME.jpg); give a folder that does")
    partial[".json"].write_text(json.dumps(index) + "\n", encoding="utf-8")
    for suffix in suffixes:
        partial[suffix].rename(args.out.with_suffix(suffix))
    print(json.dumps({"path": str(args.out), **index}))


if __name__ == "__main__":
    main()
