"""Packs a folder of class folders of JPEGs into a TFRecord file for tf.data.

    python3 pack_tfrecord.py DIR OUT.tfrecord

Writes OUT.tfrecord and OUT.json {classes, images, skipped}. Each record is a tf.train.Example with the keys of TensorFlow's own
ImageNet files: image/encoded (the JPEG), image/class/label (position in the sorted class names) and image/filename.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from packing import pack
from with_tensorflow.shim import tf


def decodes(jpeg):
    """Whether TensorFlow's own decoder reads these bytes."""
    try:
        tf.io.decode_jpeg(jpeg, channels=3)
    except tf.errors.InvalidArgumentError:
        return False
    return True


class Writer:
    def __init__(self, paths):
        self.records = tf.io.TFRecordWriter(str(paths[".tfrecord"]))

    def write(self, number, jpeg, label, name):
        del number
        features = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        self.records.write(example.SerializeToString())

    def close(self):
        self.records.close()


if __name__ == "__main__":
    pack(__doc__.splitlines()[0], suffixes=(".json", ".tfrecord"), decodes=decodes, open_writer=Writer)
