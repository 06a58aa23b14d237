"""An external program: MXNet's own Module API and Speedometer, as in MXNet's tutorials.

    python3 speedometer.py [BATCHES]

Its only log is that of `mx.callback.Speedometer`.
"""

import logging
import sys

import mxnet as mx
import numpy as np

BATCH = 16
FREQUENT = 10

logging.basicConfig(level=logging.INFO, format="%(message)s")
batches = int(sys.argv[1]) if len(sys.argv) > 1 else 81

images = np.random.default_rng(1).normal(size=(BATCH, 3, 32, 32)).astype(np.float32)
labels = np.arange(BATCH, dtype=np.float32) % 10
source = mx.io.ResizeIter(mx.io.NDArrayIter(images, labels, BATCH), batches)

net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=16)
net = mx.sym.Activation(net, act_type="relu")
net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=10)
net = mx.sym.SoftmaxOutput(net, name="softmax")

mx.mod.Module(net).fit(
    source,
    num_epoch=1,
    eval_metric="ce",
    optimizer_params={"learning_rate": 0.01},
    batch_end_callback=mx.callback.Speedometer(BATCH, FREQUENT),
)
