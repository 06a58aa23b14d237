"""Packs a folder of class folders with JPEGs into a TFRecord file for tf.data.

    python3 pack_tfrecord.py DIR OUT.tfrecord

Writes OUT.tfrecord and OUT.json {classes, images, skipped}. Each record is a tf.train.Example with the keys of TensorFlow's own
ImageNet files: image/encoded (the JPEG), image/class/label (position in the sorted class names) and image/filename. A JPEG that is
cut short or does not decode is left out and named in `skipped`. Progress goes to standard error, one JSON line at the end to
standard output.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from arguments import refuse
from class_folders import class_folders, is_whole
from tensorflow_shim import tf

PROGRESS_EVERY = 500


def decodes(jpeg):
    """Whether TensorFlow's own decoder reads these bytes to the end."""
    if not is_whole(jpeg):
        return False
    try:
        tf.io.decode_jpeg(jpeg, channels=3)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def example(jpeg, label, name):
    """Serialize one image."""
    features = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    if args.out.suffix != ".tfrecord":
        refuse(f"{args.out} does not end with .tfrecord; give a name that does")
    if not args.folder.is_dir():
        refuse(f"{args.folder} is not a folder; give one that holds one folder of JPEGs a class")
    classes, images = class_folders(args.folder)
    # Readers draw from a window of the file that moves on: in the folders' order, a batch would hold few classes.
    random.Random(0).shuffle(images)

    # Written under other names and renamed at the end, the .tfrecord last: where there is one, its index is complete.
    suffixes = (".json", ".tfrecord")
    partial = {suffix: args.out.with_suffix(f".partial{suffix}") for suffix in suffixes}
    packed, skipped = 0, []
    with tf.io.TFRecordWriter(str(partial[".tfrecord"])) as writer:
        for seen, (name, label) in enumerate(images, start=1):
            jpeg = (args.folder / name).read_bytes()
            if decodes(jpeg):
                writer.write(example(jpeg, label, name))
                packed += 1
            else:
                skipped.append(name)
            if seen % PROGRESS_EVERY == 0 or seen == len(images):
                print(f"{seen} of {len(images)} images, {len(skipped)} left out", file=sys.stderr, flush=True)
    if not packed:
        partial[".tfrecord"].unlink()
        refuse(f"{args.folder} holds no JPEG in class folders that decodes (CLASS/NAME.jpg); give a folder that does")
    index = {"classes": classes, "images": packed, "skipped": sorted(skipped)}
    partial[".json"].write_text(json.dumps(index) + "\n", encoding="utf-8")
    for suffix in suffixes:
        partial[suffix].rename(args.out.with_suffix(suffix))
    print(json.dumps({"path": str(args.out), **index}))


if __name__ == "__main__":
    main()
