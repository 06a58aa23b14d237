"""A minimal MXNet Gluon training loop that uses only the suite's network: the reference for the suite's overhead.

    OMP_NUM_THREADS=2 python3 bare_mxnet.py --model=resnet18 --image-size=32 --batch=32 --iterations=40 --warmup=4 --seed=1 --threads=2

Prints images/sec, and the seconds from the start of the process to the end of the first step.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import check_model
from events import process_start
from flags import bare_parser
from networks import MXNET

args = bare_parser(__doc__.splitlines()[0]).parse_args()
check_model(args, "MXNet", MXNET)
os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read by MXNet when it is imported

from models_mxnet import build  # noqa: E402
from with_mxnet.shim import mx  # noqa: E402

mx.random.seed(args.seed)
net = build(args.model, args.image_size, 1000, [mx.cpu()])
net.hybridize(static_alloc=True, static_shape=True)
loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
loss_function.hybridize(static_alloc=True, static_shape=True)
rates = {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-4}
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", rates, kvstore=None)
images = mx.nd.random.normal(shape=(args.batch, 3, args.image_size, args.image_size))
labels = mx.nd.random.randint(0, 1000, shape=(args.batch,)).astype("float32")

for iteration in range(args.warmup + args.iterations):
    if iteration == args.warmup:
        mx.nd.waitall()
        start = time.perf_counter()
    with mx.autograd.record():
        loss = loss_function(net(images), labels)
    loss.backward()
    trainer.step(args.batch)
    if iteration == 0:
        mx.nd.waitall()
        first_step = time.monotonic() - process_start()

mx.nd.waitall()
print(f"images/sec {args.iterations * args.batch / (time.perf_counter() - start):.3f}")
print(f"first step {first_step:.3f}")
