# ruff: noqa: INP001, S101, T201 - a script that a build runs: it prints what it finds and fails where an assertion does
"""Last step of the image's build: Caffe is the wanted version, computes by its own program and by pycaffe, packs and decodes images.

    python3 smoke.py VERSION cpu

The net is small enough for its loss and gradient to be computed by hand.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["GLOG_minloglevel"] = "2"  # noqa: SIM112 - glog's own spelling; pycaffe would print a whole net as it builds it

import caffe
import lmdb
import numpy as np
from PIL import Image, features

NET = """
layer { name: "images" type: "DummyData" top: "images"
  dummy_data_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } data_filler { type: "constant" value: 1 } } }
layer { name: "layer" type: "Convolution" bottom: "images" top: "features"
  convolution_param { num_output: 4 kernel_size: 3 bias_term: false weight_filler { type: "constant" value: 1 } } }
layer { name: "loss" type: "Reduction" bottom: "features" top: "loss" loss_weight: 1 reduction_param { operation: SUM axis: 0 } }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 2 display: 1 snapshot_after_train: false solver_mode: CPU'

version, device = sys.argv[1:]
assert device == "cpu", device
assert version in caffe.__version__, caffe.__version__
assert features.check("jpg"), "Pillow without JPEG"
libraries = Path("/proc/self/maps").read_text()
assert "openblas" in libraries, "not linked against OpenBLAS: the reference BLAS is ten times slower"

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER)

    net = caffe.Net(str(folder / "net.prototxt"), caffe.TRAIN)
    loss = net.forward()["loss"]
    net.backward()
    # 27 ones under each of 6 x 6 positions, 4 channels, 2 images; each weight is used at 6 x 6 positions of 2 images
    assert loss == 27 * 36 * 4 * 2, loss
    assert (net.params["layer"][0].diff == 36 * 2).all(), net.params["layer"][0].diff

    said = subprocess.run(
        ["caffe", "train", "--solver=solver.prototxt"],
        cwd=folder,
        env={**os.environ, "GLOG_minloglevel": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "Optimization Done." in said, said
    assert "loss = 7776" in said, said

    pixels = np.asarray(Image.new("RGB", (8, 8), (1, 2, 3))).transpose(2, 0, 1)
    with lmdb.open(str(folder / "lmdb"), map_size=1 << 20) as store, store.begin(write=True) as transaction:
        transaction.put(b"0", caffe.io.array_to_datum(pixels, label=7).SerializeToString())
    with lmdb.open(str(folder / "lmdb"), readonly=True, lock=False) as store, store.begin() as transaction:
        datum = caffe.proto.caffe_pb2.Datum.FromString(transaction.get(b"0"))
    assert (datum.label, caffe.io.datum_to_array(datum)[:, 0, 0].tolist()) == (7, [1, 2, 3]), datum

print(f"caffe {caffe.__version__} works")
