"""Classifies images with a convolutional network in MXNet Gluon, on one device, and reports events.

    python3 infer_mxnet.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --data=synthetic --seed=1 --threads=2 --cpus-per-worker=0 \
        --loader-workers=1
    python3 infer_mxnet.py ... --data=FOLDER --fit=200 --precision=int8

`workloads/inference.py` has the loop and defines the measurements. Networks are hybridized with static memory. On a CPU, fp32 and int8
(`quantized`, on CPUs only) run with oneDNN's fused operators; before conversion, and thus for the reference answers, the
network runs as it trains. fp16 casts the whole network and its images.

On a GPU, samples lie in pinned host memory, real ones as bytes, synthetic ones in fp32, and are copied in that form; the GPU normalizes and
casts them. MXNet's engine runs its queue in the background, transfers alongside operators, and reports no times: a batch counts as answered
once its classes have been fetched, while later batches are in flight.
"""

import contextlib
import math
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inference
from arguments import check_model
from classifier import Classifier, check
from flags import infer_parser
from flop import per_sample
from loop import norm
from networks import MXNET
from with_mxnet.training import check_precision, environment, set_up

STATIC = {"static_alloc": True, "static_shape": True}


class Predictor(Classifier):
    def __init__(self, args, mx):
        from models_mxnet import build, multiplied

        super().__init__(args)
        self.mx, self.dtype = mx, "float32"
        self.context = mx.gpu(0) if args.device == "gpu" else mx.cpu()
        mx.random.seed(args.seed)
        self.net = build(args.model, args.image_size, args.num_classes, [self.context], auxiliary=False)
        self.options = STATIC
        self.net.hybridize(**self.options)
        self.trained = [p for p in self.net.collect_params().values() if p.grad_req != "null"]
        self.parameters = sum(math.prod(p.shape) for p in self.trained)
        self.flop_per_sample = per_sample(multiplied(self.net, args.image_size))

    def list_images(self):
        from folders_mxnet import Folders

        args = self.args
        alone = {"rank": 0, "world_size": 1, "workers": args.loader_workers}
        self.folders = Folders(args.data, size=args.image_size, seed=args.seed, **alone)
        return self.folders.classes, self.folders.training, self.folders.validation

    def decode(self, images):
        import numpy as np
        from folders_mxnet import Central

        parts = list(Central(self.folders, images, batch=inference.CHUNK))
        pixels, labels = (np.concatenate([part[place] for part in parts]) if parts else () for place in (0, 1))
        return pixels, labels, self.folders.unreadable

    def fit(self, iterations):
        from folders_mxnet import TrainingBatches

        mx, batch = self.mx, inference.FIT_BATCH
        source = TrainingBatches(self.folders, batch=batch, contexts=[self.context], dtype="float32")
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = mx.gluon.Trainer(
            self.net.collect_params(), "adam", {"learning_rate": inference.FIT_RATE}, kvstore=None
        )
        for _ in range(iterations):
            (images,), (labels,) = next(source)
            with mx.autograd.record():
                losses = loss(self.net(images), labels)
            losses.backward()
            trainer.step(batch)
            mx.nd.waitall()  # otherwise images are decoded ahead of the device and pile up in its memory
        self.decoded += source.decoded
        self.skipped.update(source.skipped)

    def convert(self):
        if self.args.precision == "int8":
            samples = self.prepare(self.calibration())
            self.net = quantized(self.mx, self.net, samples, batch=min(inference.CHUNK, len(samples)))
        elif self.args.precision == "fp16":
            self.dtype = "float16"
            self.net.cast(self.dtype)
        elif self.args.device == "cpu":
            self.options = {**STATIC, "backend": "MKLDNN"}
        self.net.hybridize(**self.options)

    def prepare(self, samples):
        if self.args.data == "synthetic":
            images = self.mx.nd.array(samples, ctx=self.context)
        else:
            from folders_mxnet import normalized

            images = normalized(samples, self.context)
        return images.astype(self.dtype, copy=False)

    def classes(self, samples):
        scores = self.net(self.prepare(samples)).astype("float32", copy=False)  # fp16 would round a class above 2048
        return scores.argmax(axis=1)

    def predict(self, samples):
        return self.classes(samples).asnumpy().astype(int)

    def parameter_norm(self):
        return norm(p.data().asnumpy() for p in self.trained)


class OnGpu(Predictor):
    """A predictor on a GPU, with several batches in flight."""

    in_flight = inference.IN_FLIGHT

    def lay_out(self, samples):
        return self.mx.nd.array(samples, ctx=self.mx.cpu_pinned(), dtype=samples.dtype)

    @contextlib.contextmanager
    def catching_out_of_memory(self):
        """Raise `OutOfMemoryError` if the GPU runs out of memory in here, and free what it had taken."""
        try:
            yield
        except self.mx.MXNetError as error:
            if "out of memory" not in str(error).lower():
                raise
        else:
            return
        self.net.hybridize(**self.options)  # drops the memory planned for this batch size
        self.context.empty_cache()
        raise inference.OutOfMemoryError

    def submit(self, samples):
        with self.catching_out_of_memory():
            return self.classes(samples)

    def collect(self, ticket):
        with self.catching_out_of_memory():
            return ticket.asnumpy().astype(int), time.monotonic()

    def place(self, samples):
        placed = samples.copyto(self.context)
        placed.wait_to_read()
        return placed

    def run(self, placed):
        self.classes(placed).wait_to_read()

    def free_bytes(self):
        return self.mx.context.gpu_memory_info(self.context.device_id)[0]


def quantized(mx, net, samples, *, batch):
    """Quantize `net` from fp32 to int8 for CPUs, calibrated on `samples`, (samples, 3, height, width) in fp32 and normalized.

    MXNet fuses each convolution with the normalization, activation and addition after it, runs the network on the samples and takes the largest
    and smallest output of each layer as its range; weights have a range per output channel. From the first convolution to the
    last dense layer, nothing is converted back to fp32. On a processor with VNNI instructions, int8 is several times as fast.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about labels without a type; there are no labels
        return mx.contrib.quantization.quantize_net_v2(
            net,
            quantized_dtype="auto",  # unsigned after a ReLU
            quantize_mode="full",
            quantize_granularity="channel-wise",
            calib_data=mx.io.NDArrayIter(samples, batch_size=batch, last_batch_handle="discard"),
            calib_mode="naive",
            ctx=mx.cpu(),
        )


def main():
    args = infer_parser(__doc__.splitlines()[0]).parse_args()
    check_model(args, "MXNet", MXNET)
    check(args, int8="networks are quantized for oneDNN here; ask for fp16")
    if args.precision != "int8":
        check_precision(args)
    mx = set_up(args)
    imported = time.monotonic()
    kind = OnGpu if args.device == "gpu" else Predictor
    inference.report(lambda: kind(args, mx), args, environment=environment(args, mx), imported=imported)


if __name__ == "__main__":
    main()
