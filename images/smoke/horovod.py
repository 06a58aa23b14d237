# ruff: noqa: INP001, PLR2004, S101, T201 - a script that a build runs: it prints what it finds and fails where an assertion does
"""Last step of the build of an image with Horovod: two processes add up vectors that differ, and share one that only the first has.

    horovodrun --gloo|--mpi -np 2 python3 smoke_horovod.py mxnet|pytorch|tensorflow VERSION gloo|mpi

Sum, average and broadcast are held against values computed by hand.
"""

import importlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod
import numpy as np

framework, version, controller = sys.argv[1:]
hvd = importlib.import_module({"pytorch": "horovod.torch"}.get(framework, f"horovod.{framework}"))
if framework == "mxnet":
    from mxnet import nd

    wrap, unwrap = nd.array, lambda tensor: tensor.asnumpy()
elif framework == "pytorch":
    import torch

    wrap, unwrap = torch.from_numpy, lambda tensor: tensor.numpy()
else:
    import tensorflow as tf

    wrap, unwrap = tf.constant, lambda tensor: tensor.numpy()

hvd.init()
assert horovod.__version__ == version, horovod.__version__
assert hvd.gloo_built(), "no Gloo"
assert hvd.mpi_built(), "no MPI"
assert {"gloo": hvd.gloo_enabled(), "mpi": hvd.mpi_enabled()}[controller], f"not started by {controller}"
assert hvd.size() == 2, hvd.size()

own = np.array([1, 2, 3], dtype=np.float32) * 10 ** hvd.rank()
total = unwrap(hvd.allreduce(wrap(own), op=hvd.Sum, name="total"))
assert total.tolist() == [11, 22, 33], total
mean = unwrap(hvd.allreduce(wrap(own), op=hvd.Average, name="mean"))
assert mean.tolist() == [5.5, 11, 16.5], mean
first = unwrap(hvd.broadcast(wrap(own), root_rank=0, name="first"))
assert first.tolist() == [1, 2, 3], first
print(f"horovod {version} with {framework}, rank {hvd.rank()} of {hvd.size()} by {controller} works")
