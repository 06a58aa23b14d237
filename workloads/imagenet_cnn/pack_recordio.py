"""Packs a folder of class folders of JPEGs into a RecordIO file for MXNet's C++ iterator.

    python3 pack_recordio.py DIR OUT.rec

Writes OUT.rec, OUT.idx and OUT.json {classes, images, skipped}; labels are positions in the sorted class names. Images that do not decode are
left out: the iterator would end the training process at the first one.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from packing import pack
from with_mxnet.shim import mx


def decodes(jpeg):
    """Whether MXNet's own decoder reads these bytes."""
    try:
        return mx.image.imdecode(jpeg).shape[2] == 3
    except (mx.MXNetError, ValueError):
        return False


class Writer:
    def __init__(self, paths):
        self.records = mx.recordio.MXIndexedRecordIO(str(paths[".idx"]), str(paths[".rec"]), "w")

    def write(self, number, jpeg, label, name):
        del name
        self.records.write_idx(number, mx.recordio.pack(mx.recordio.IRHeader(0, label, number, 0), jpeg))

    def close(self):
        self.records.close()


if __name__ == "__main__":
    pack(__doc__.splitlines()[0], suffixes=(".idx", ".json", ".rec"), decodes=decodes, open_writer=Writer)
