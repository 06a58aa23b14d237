"""Classifies images with a convolutional network in MXNet Gluon, on one device, and reports by events.

    python3 infer_mxnet.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --data=synthetic --seed=1 --threads=2 --cpus-per-worker=0 \
        --loader-workers=1
    python3 infer_mxnet.py ... --data=FOLDER --fit=200 --precision=int8

The loop, and what is measured, is `workloads/inference.py`. Networks are hybridized with static memory. On a CPU fp32 runs with oneDNN's fused
operators, as int8 does too (`quantize_mxnet.py`, on CPUs only); until it is converted, which is what the reference answers with, the
network runs as it trains. fp16 casts network and images as a whole.

On a GPU the samples lie in pinned host memory, real ones as bytes, synthetic ones in fp32, and travel so; they are normalized and cast on the
GPU. MXNet's engine runs what it was handed in the background, transfers beside operators, and tells no time: a batch counts as answered when
its classes were fetched, at which others are under way.
"""

import contextlib
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inference
from arguments import refuse
from class_folders import spread
from flags import infer_parser
from flop import per_sample
from with_mxnet.training import check_precision, set_up

STATIC = {"static_alloc": True, "static_shape": True}


def check(args):
    """Refuse what this program can't do; before MXNet is imported, as nothing here needs it."""
    inference.check(args)
    if (args.precision, args.device) == ("int8", "gpu"):
        refuse("--precision=int8 needs a CPU: networks are quantized for oneDNN here; ask for fp16")
    if args.precision != "int8":
        check_precision(args)
    if args.data != "synthetic" and not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; give one that holds one folder of JPEGs a class")


class Predictor(inference.OneByOne):
    """A network and its images; `workloads/inference.py` says what its methods are for."""

    def __init__(self, args, mx):
        from models_mxnet import build
        from with_mxnet.operations import layers

        self.args, self.mx = args, mx
        self.context = mx.gpu(0) if args.device == "gpu" else mx.cpu()
        self.overcommits = args.device == "cpu"
        self.dtype, self.decoded, self.folders = "float32", 0, None
        mx.random.seed(args.seed)
        self.net = build(args.model, args.image_size, args.num_classes, [self.context])
        self.options = STATIC
        self.net.hybridize(**self.options)
        self.trained = [p for p in self.net.collect_params().values() if p.grad_req != "null"]
        self.parameters = sum(math.prod(p.shape) for p in self.trained)
        self.flop_per_sample = per_sample(layers(self.net, args.image_size))

    @property
    def skipped(self):
        return self.folders.unreadable

    def library(self, most):
        if self.args.data == "synthetic":
            return self.synthetic(most), None
        from folders_mxnet import Folders

        args = self.args
        alone = {"rank": 0, "world_size": 1, "workers": args.loader_workers}
        self.folders = Folders(args.data, size=args.image_size, seed=args.seed, **alone)
        if len(self.folders.classes) > args.num_classes:
            refuse(f"{args.data} has {len(self.folders.classes)} classes, --num-classes={args.num_classes} is less")
        if not self.folders.validation:
            refuse(
                f"{args.data} has fewer than five JPEGs in each class, none of which would be left to infer on; give more"
            )
        return self.decode(spread(self.folders.validation, most))

    def synthetic(self, count):
        from synthetic import samples

        shape = {"image_size": self.args.image_size, "num_classes": self.args.num_classes}
        return samples(self.args.seed, first=0, count=count, **shape)[0]

    def decode(self, images):
        """The middle of each of these images, as bytes, and their labels."""
        import numpy as np
        from folders_mxnet import Central

        parts = list(Central(self.folders, images, batch=inference.CHUNK))
        if not parts:
            refuse(f"of {len(images)} JPEGs in {self.args.data} none decodes; give a folder whose images do")
        pixels, labels = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
        self.decoded += len(labels)
        return pixels, labels

    def fit(self, iterations):
        from folders_mxnet import Learned

        mx, batch = self.mx, inference.FIT_BATCH
        if len(self.folders.training) < batch:
            refuse(
                f"{self.args.data} has {len(self.folders.training)} JPEGs to learn from, a batch has {batch}; give more"
            )
        source = Learned(self.folders, batch=batch, contexts=[self.context], dtype="float32")
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
            mx.nd.waitall()  # or images would be decoded ahead of the device, and pile up in its memory
        self.decoded += source.decoded

    def convert(self):
        if self.args.precision == "int8":
            from quantize_mxnet import quantized

            samples = self.calibration()
            self.net = quantized(self.net, samples, batch=min(inference.CHUNK, len(samples)))
        elif self.args.precision == "fp16":
            self.dtype = "float16"
            self.net.cast(self.dtype)
        elif self.args.device == "cpu":
            self.options = {**STATIC, "backend": "MKLDNN"}
        self.net.hybridize(**self.options)

    def calibration(self):
        """Images that nothing is measured on, as the network takes them."""
        if self.args.data == "synthetic":
            return self.mx.nd.array(self.synthetic(inference.CALIBRATION))
        images, _ = self.decode(spread(self.folders.training, inference.CALIBRATION))
        return self.prepare(images)

    def prepare(self, samples):
        """Bring samples to the device as the network takes them."""
        if self.folders is None:
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
        arrays = [p.data().asnumpy().astype("float64") for p in self.trained]
        return math.sqrt(math.fsum(float((array**2).sum()) for array in arrays))


class OnGpu(Predictor):
    """The same on a GPU, several batches at once."""

    in_flight = inference.IN_FLIGHT

    def lay_out(self, samples):
        return self.mx.nd.array(samples, ctx=self.mx.cpu_pinned(), dtype=samples.dtype)

    @contextlib.contextmanager
    def memory(self):
        """What runs out of the GPU's memory in here raises `OutOfMemoryError`, and lets go of it."""
        try:
            yield
        except self.mx.MXNetError as error:
            if "out of memory" not in str(error).lower():
                raise
        else:
            return
        self.net.hybridize(**self.options)  # drops the memory that it has planned for a batch of this size
        self.context.empty_cache()
        raise inference.OutOfMemoryError

    def submit(self, samples):
        with self.memory():
            return self.classes(samples)

    def collect(self, ticket):
        with self.memory():
            return ticket.asnumpy().astype(int), time.monotonic()

    def place(self, samples):
        placed = samples.copyto(self.context)
        placed.wait_to_read()
        return placed

    def run(self, placed):
        self.classes(placed).wait_to_read()

    def free_bytes(self):
        return self.mx.context.gpu_memory_info(self.context.device_id)[0]


def main():
    args = infer_parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    mx = set_up(args)
    from with_mxnet.environment import environment

    imported = time.monotonic()
    kind = OnGpu if args.device == "gpu" else Predictor
    inference.report(lambda: kind(args, mx), args, environment=environment(args, mx), imported=imported)


if __name__ == "__main__":
    main()
