"""Classifies images with a convolutional network in TensorFlow, on one device, and reports events.

    python3 infer_tensorflow.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --data=synthetic --seed=1 --threads=2 --cpus-per-worker=0 \
        --loader-workers=1
    python3 infer_tensorflow.py ... --data=FOLDER --fit=200 --precision=int8

`workloads/inference.py` has the loop and defines the measurements. A network is one graph from images to classes, for batches of any length.
fp16 and bf16 hold weights and activations in that precision, but normalizations' weights in fp32; tf32 lets matrix products and convolutions
round. int8 is `Quantized`, on CPUs only: TensorFlow Lite has no int8 kernels for NVIDIA's GPUs.

On a GPU, samples lie in host memory, real ones as bytes, synthetic ones in fp32, and are copied in that form; the graph normalizes them there.
TensorFlow's calls block during their transfers, so several threads each submit a batch and note when its classes arrive.
"""

import argparse
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inference
from arguments import check_cpu_precision, refuse
from classifier import Classifier, check
from flags import infer_parser
from flop import per_sample
from loop import norm
from process import leave, pin
from with_tensorflow import device as devices

# TensorFlow's message for samples that do not fit on a GPU; other allocations fail as exhausted resources.
UNCOPIED = "Dst tensor is not initialized"


class Predictor(Classifier):
    def __init__(self, args, tf):
        from with_tensorflow import shim

        if shim.V1 and args.precision in {"bf16", "int8"}:
            refuse(f"TensorFlow {tf.__version__} is offered in fp32, tf32 and fp16")
        super().__init__(args)
        self.tf, self.shim = tf, shim
        shim.set_seed(args.seed)
        shim.set_precision("fp32")  # the fp32 reference, until `convert`
        self.net = self.build()
        self.predicted = self.graph(self.net)

    def build(self):
        from models_tensorflow import build

        return build(self.args.model, self.args.image_size, self.args.num_classes, auxiliary=False)

    def scores(self, net, images):
        """The network's scores of normalized images, in inference mode."""
        from with_tensorflow.layers import in_use

        with in_use(net):
            return net([images, self.tf.constant([self.args.seed, -1])])  # the seed is for dropout, which is off

    def graph(self, net):
        """Build one graph from a batch of library images, of any length, to the indices of the best classes."""
        from data_tensorflow import normalized

        def classes(images):
            return self.tf.argmax(self.scores(net, normalized(images)), 1)

        kind = self.tf.float32 if self.args.data == "synthetic" else self.tf.uint8
        size = self.args.image_size
        return self.tf.function(
            classes, input_signature=[self.tf.TensorSpec((None, size, size, 3), kind)], autograph=False
        )

    def synthetic(self, count):
        return super().synthetic(count).transpose(0, 2, 3, 1).copy()

    def decode(self, images):
        from data_tensorflow import read_central

        return read_central(self.args, images)

    def fit(self, iterations):
        from data_tensorflow import Folders, normalized
        from with_tensorflow.ranks import Alone

        args, tf = self.args, self.tf
        alone = Alone(f"/{args.device}:0")
        batches = Folders(
            argparse.Namespace(**{**vars(args), "batch": inference.FIT_BATCH}), alone, images=self.training
        )
        optimizer = tf.keras.optimizers.Adam(inference.FIT_RATE)
        weights = self.net.trainable_weights

        def learn(images, labels, iteration):
            with tf.GradientTape() as tape:
                scores = self.net([normalized(images), tf.stack([args.seed, iteration])])
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
                loss = tf.reduce_mean(losses)
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # noqa: B905 - Python 3.8

        step = tf.function(learn, autograph=False)
        for iteration in range(iterations):
            step(*next(batches), tf.constant(iteration))
        self.decoded += batches.decoded
        self.skipped.update(batches.skipped)

    def convert(self):
        precision = self.args.precision
        if precision == "int8":
            from data_tensorflow import normalized

            found = normalized(self.tf.constant(self.calibration())).numpy()
            scores = Quantized(self.tf, lambda images: self.scores(self.net, images), found, threads=self.args.threads)
            self.predicted = lambda images: scores(normalized(self.tf.constant(images)).numpy()).argmax(1)
            return
        self.shim.set_precision(precision, weights=True)
        if precision in {"fp16", "bf16"}:
            net = self.build()
            net.set_weights(self.net.get_weights())
            self.predicted = self.graph(net)

    def predict(self, samples):
        import numpy as np

        errors = self.tf.errors
        try:
            return np.asarray(self.predicted(samples))
        except (errors.ResourceExhaustedError, errors.InternalError) as error:
            if isinstance(error, errors.InternalError) and UNCOPIED not in error.message:
                raise
        raise inference.OutOfMemoryError  # outside `except`: releasing the exception releases the frames that hold the allocations

    @property
    def flop_per_sample(self):
        from with_tensorflow.layers import multiplied

        return per_sample(multiplied(self.net))

    @property
    def parameters(self):
        return sum(math.prod(weight.shape) for weight in self.shim.trained(self.net))

    def parameter_norm(self):
        return norm(weight.numpy() for weight in self.shim.trained(self.net))


class OnGpu(Predictor):
    """A predictor on a GPU, with several batches in flight."""

    in_flight = inference.IN_FLIGHT

    def __init__(self, args, tf):
        super().__init__(args, tf)
        self.threads = ThreadPoolExecutor(self.in_flight)

    def submit(self, samples):
        return self.threads.submit(super().submit, samples)

    def collect(self, ticket):
        return ticket.result()

    def place(self, samples):
        with self.tf.device(f"/{self.args.device}:0"):
            placed = self.tf.identity(self.tf.constant(samples))
        placed[:1].numpy()  # blocks until it is there
        return placed

    def run(self, placed):
        self.predict(placed)  # also copies the classes back, a few bytes

    def free_bytes(self):
        """None: TensorFlow reports its own memory, not the device's free memory."""


class Quantized:
    """A network in int8 by TensorFlow Lite: scores (batch, classes) of normalized images in fp32, NHWC, like the calibration samples.

    `TFLiteConverter` writes int8 weights with a scale per channel and int8 activations with a scale per tensor; the interpreter runs them with
    XNNPACK's int8 kernels (https://ai.google.dev/edge/litert/models/post_training_quantization). Full-integer only: an operator without an int8
    version fails the conversion, so that no part of the network silently stays in fp32.
    """

    def __init__(self, tf, scores, samples, *, threads):
        """Convert `scores`, a function of a batch; the activations' ranges are measured on `samples`, (count, size, size, 3)."""
        frozen = tf.function(scores, input_signature=[tf.TensorSpec((None, *samples.shape[1:]), tf.float32)])
        converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen.get_concrete_function()], tf.Module())
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([sample[None]] for sample in samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        self.interpreter = tf.lite.Interpreter(model_content=converter.convert(), num_threads=threads)
        (self.into,), (self.out,) = self.interpreter.get_input_details(), self.interpreter.get_output_details()
        self.shape = None

    def __call__(self, images):
        if images.shape != self.shape:
            self.interpreter.resize_tensor_input(self.into["index"], images.shape)
            self.interpreter.allocate_tensors()
            self.shape = images.shape
        self.interpreter.set_tensor(self.into["index"], images)
        self.interpreter.invoke()
        return self.interpreter.get_tensor(self.out["index"])


def main():
    args = infer_parser(__doc__.splitlines()[0]).parse_args()
    pin(args.cpus_per_worker)
    check(args, int8="TensorFlow Lite has no int8 kernels for GPUs; ask for fp16 or bf16")
    check_cpu_precision(args)

    from with_tensorflow.shim import tf

    gpus = devices.set_up(args, tf)
    imported = time.monotonic()
    kind = OnGpu if args.device == "gpu" else Predictor
    inference.report(lambda: kind(args, tf), args, environment=devices.environment(args, tf, gpus), imported=imported)


if __name__ == "__main__":
    main()
    leave()
