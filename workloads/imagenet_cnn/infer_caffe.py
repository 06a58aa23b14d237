"""Classifies images with a convolutional network in Caffe, through its Python interface on one device, and reports events.

    python3 infer_caffe.py --model=lenet --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --data=synthetic --seed=1 --threads=2 --cpus-per-worker=0 \
        --loader-workers=0
    python3 infer_caffe.py ... --data=FOLDER --fit=200

`workloads/inference.py` has the loop and defines the measurements. The network is built for the phase TEST: normalizations use running
statistics, and there is no dropout. It runs in fp32 only, so that its answers are their own reference. It answers one batch at a time, on a
GPU too, because Caffe's interface waits for each. Syntax of Python 3.6 only.

Caffe ends the process when a GPU runs out of memory. A batch is therefore compared beforehand with the memory that was free at the start, using
the size of all blobs: Caffe keeps every blob, in place or not, for as long as the network lives.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inference
import models_caffe
from arguments import check_model, refuse
from classifier import Classifier, check
from flags import infer_parser
from flop import per_sample
from loop import norm
from models_caffe import Net
from process import pin
from process_caffe import caffe_version, environment, is_nvidia
from snapshot_caffe import STATISTICS

SOLVER = """\
net: "{net}"
type: "Adam"
base_lr: {rate}
lr_policy: "fixed"
momentum: 0.9
momentum2: 0.999
delta: 1e-8
display: 0
snapshot_after_train: false
solver_mode: {mode}
random_seed: {seed}
"""
MIB = 2**20


def check_caffe(args):
    if args.precision != "fp32":
        refuse(f"--precision={args.precision} is not offered with Caffe's inference; ask for fp32")
    check_model(args, "Caffe", models_caffe.MODELS)
    if shutil.which("caffe") is None or importlib.util.find_spec("caffe") is None:
        refuse("Caffe's Python interface is not installed here; run this in a Caffe image")


def free_memory():
    """Free bytes on the first GPU, according to nvidia-smi; None if it reports nothing."""
    query = ["nvidia-smi", "--id=0", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        return MIB * int(subprocess.run(query, stdout=subprocess.PIPE, check=True).stdout.decode())
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def inputs(net, **shapes: tuple):
    """Add the layers through which Python feeds the network."""
    for top, sizes in shapes.items():
        dims = " ".join(f"dim: {size}" for size in sizes)
        net.layer("Input", [], [top], f"input_param {{ shape {{ {dims} }} }}")


class Predictor(Classifier):
    def __init__(self, args, caffe, directory, *, nvidia):
        super().__init__(args)
        self.caffe, self.directory, self.nvidia = caffe, directory, nvidia
        self.free = None if self.overcommits else free_memory()
        caffe.set_random_seed(args.seed)
        definition = Net(args.model, nvidia=nvidia)
        inputs(definition, data=(1, 3, args.image_size, args.image_size))
        self.scores = models_caffe.scores(definition, args.model, args.image_size, args.num_classes, auxiliary=False)
        self.kinds = definition.kinds
        self.parameters = definition.parameters
        self.flop_per_sample = per_sample(definition.multiplied)
        self.net = caffe.Net(self.write_definition(definition, "deploy"), caffe.TEST)
        self.begin_statistics()
        self.bytes_per_sample = 4 * sum(blob.count for blob in self.net.blobs.values())

    def write_definition(self, definition, name):
        path = self.directory / f"{name}.prototxt"
        path.write_text(definition.text(), encoding="utf-8")
        return str(path)

    def begin_statistics(self):
        """Set the normalizations' mean to 0 and variance to 1, as other frameworks do; Caffe starts with a variance of 0."""
        for name, blobs in self.net.params.items():
            for blob, value in zip(blobs, (0, 1, 1) if self.kinds[name] == "BatchNorm" else ()):  # noqa: B905 - Python 3.6
                blob.data[...] = value

    def list_images(self):
        from folders_caffe import Folders

        args = self.args
        self.folders = Folders(args.data, size=args.image_size, seed=args.seed, workers=args.loader_workers)
        return self.folders.classes, self.folders.training, self.folders.validation

    def decode(self, images):
        return (*self.folders.central_squares(images), self.folders.unreadable)

    def fit(self, iterations):
        from folders_caffe import normalized

        args, batch = self.args, inference.FIT_BATCH
        definition = Net(args.model, nvidia=self.nvidia)
        inputs(definition, data=(batch, 3, args.image_size, args.image_size), label=(batch,))
        models_caffe.extend(definition, args.model, args.image_size, args.num_classes, auxiliary=False)
        settings = {"rate": inference.FIT_RATE, "mode": args.device.upper(), "seed": args.seed}
        path = self.directory / "solver.prototxt"
        path.write_text(SOLVER.format(net=self.write_definition(definition, "fit"), **settings), encoding="utf-8")
        solver = self.caffe.get_solver(str(path))
        source = self.folders.augmented(batch)
        for _ in range(iterations):
            images, labels = next(source)
            self.decoded += len(labels)
            solver.net.blobs["data"].data[...] = normalized(images)
            solver.net.blobs["label"].data[...] = labels
            solver.step(1)
        weights = str(self.directory / "fitted.caffemodel")
        self.skipped.update(self.folders.unreadable)
        solver.net.save(weights)
        self.net.copy_from(weights)

    def convert(self):
        """Do nothing: inference runs in fp32, like training."""

    def predict(self, samples):
        if self.free is not None and len(samples) * self.bytes_per_sample > inference.MEMORY_SHARE * self.free:
            raise inference.OutOfMemoryError
        if self.args.data != "synthetic":
            from folders_caffe import normalized

            samples = normalized(samples)
        data = self.net.blobs["data"]
        if data.shape[0] != len(samples):
            data.reshape(*samples.shape)
            self.net.reshape()
        data.data[...] = samples
        return self.net.forward()[self.scores].argmax(1)

    def free_bytes(self):
        return self.free

    def parameter_norm(self):
        return norm(
            blob.data
            for name, blobs in self.net.params.items()
            for blob in list(blobs)[STATISTICS.get(self.kinds[name], 0) :]
        )


def run(args, directory, version):
    os.environ.update(OMP_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads), GLOG_minloglevel="2")
    import caffe

    if args.device == "gpu":
        caffe.set_mode_gpu()
        caffe.set_device(0)
    else:
        caffe.set_mode_cpu()
    imported = time.monotonic()
    nvidia = is_nvidia(version)
    make_predictor = partial(Predictor, args, caffe, directory, nvidia=nvidia)
    inference.report(make_predictor, args, environment=environment(args, version), imported=imported)


def main():
    args = infer_parser(__doc__.splitlines()[0]).parse_args()
    pin(args.cpus_per_worker)
    check(args, int8="ask for fp32")
    check_caffe(args)
    directory = Path(tempfile.mkdtemp(prefix="dlscale-caffe-"))
    try:
        run(args, directory, caffe_version())
    finally:
        shutil.rmtree(str(directory), ignore_errors=True)


if __name__ == "__main__":
    main()
