"""Inside the image: a network answers in inference mode, in every precision of a CPU, for batches of any length.

Prevents answers with dropout or batch statistics, an int8 network with parts silently in fp32, calibration on the
measured samples, weights that are not rounded, a memory error that ends the run although a smaller batch would fit.
"""

import tempfile
from pathlib import Path

import inference
import judged
import numpy as np
from flags import infer_parser
from infer_tensorflow import UNCOPIED, OnGpu, Predictor, Quantized
from with_tensorflow.layers import BatchNorm, in_use
from with_tensorflow.shim import tf

WORDS = (
    *("--image-size=32", "--num-classes=10", "--batch=4", "--iterations=1", "--warmup=1", "--window=1", "--device=cpu"),
    *("--devices=1", "--seed=1", "--threads=1", "--cpus-per-worker=0", "--loader-workers=1"),
)


def predictor(model, precision, data="synthetic"):
    words = (f"--model={model}", f"--precision={precision}", f"--data={data}")
    return Predictor(infer_parser("").parse_args([*WORDS, *words]), tf)


def scores(made, samples):
    """Scores of the fp32 network, not by its own graph."""
    with in_use(made.net):
        return made.net([tf.constant(samples), tf.constant([5, 5])]).numpy()


def all_precisions_agree_with_fp32():
    for model, precision in (("alexnet", "fp32"), ("resnet18", "bf16"), ("resnet18", "int8")):
        made = predictor(model, precision)
        samples, labels = made.library(64)
        assert (samples.shape, samples.dtype, labels) == ((64, 32, 32, 3), np.float32, None)
        # Statistics that differ from this batch's, and blocks that are more than their shortcut.
        for layer in made.net.layers:
            if isinstance(layer, BatchNorm):
                layer.gamma.assign(tf.fill(layer.gamma.shape, 0.5))
                layer.moving_variance.assign(tf.fill(layer.moving_variance.shape, 1.5))
        found = scores(made, samples)
        reference = [made.predict(samples[:count]).tolist() for count in (1, 7, 64)]
        assert reference[2] == found.argmax(1).tolist()
        assert reference[:2] == [reference[2][:1], reference[2][:7]]
        made.convert()
        answers = [made.predict(samples[:count]).tolist() for count in (1, 7, 64)]
        agreed = np.mean(np.array(answers[2]) == np.array(reference[2]))  # rounding decides between two close scores
        assert agreed == 1 if precision == "fp32" else agreed > 0.8, (model, precision, agreed)
        assert len(set(reference[2])) > 1
        assert len(answers[0]) == 1
        assert len(answers[1]) == 7


def int8_is_int8_throughout():
    made = predictor("lenet", "int8")
    samples, _ = made.library(8)
    quantized = Quantized(tf, lambda images: made.scores(made.net, images), samples, threads=1)
    np.testing.assert_allclose(quantized(samples), scores(made, samples), atol=0.05 * np.ptp(scores(made, samples)))
    kinds = [detail["dtype"] for detail in quantized.interpreter.get_tensor_details()]
    assert kinds.count(np.float32) == 2, "more than what goes in and what comes out"
    assert kinds.count(np.int8) > 4


def weights_are_rounded():
    made = predictor("lenet", "bf16")
    built = []
    made.build = lambda build=made.build: built.append(build()) or built[-1]
    made.convert()
    assert {weight.dtype for weight in built[0].trainable_weights} == {"bfloat16"}
    for weight, whole in zip(built[0].get_weights(), made.net.get_weights(), strict=True):
        np.testing.assert_allclose(np.asarray(weight, np.float32), whole, rtol=2**-8)


def several_batches_are_answered_in_order():
    args = infer_parser("").parse_args([*WORDS, "--model=lenet", "--precision=fp32", "--data=synthetic"])
    made = OnGpu(args, tf)
    samples, _ = made.library(18)
    expected = [int(made.predict(samples[row : row + 1])[0]) for row in range(18)]
    judged.check_order_of_answers(made, samples, expected)


def training_and_inference_images_do_not_overlap():
    root = Path(tempfile.mkdtemp())
    for name, level in (("dark", 20), ("light", 220)):
        (root / name).mkdir()
        for number in range(25):
            pixels = np.full((40, 40, 3), level + number % 7, np.uint8)
            (root / name / f"{number:02d}.jpg").write_bytes(tf.io.encode_jpeg(pixels).numpy())
    made = predictor("lenet", "int8", root)
    samples, labels = made.library(6)
    assert (samples.dtype, sorted(labels.tolist())) == (np.uint8, [0] * 3 + [1] * 3)
    made.fit(30)
    assert made.predict(samples).tolist() == labels.tolist()
    answered = {image.tobytes() for image in samples}
    assert made.decoded == 6 + 30 * inference.FIT_BATCH
    read = []
    made.decode = lambda images, decode=made.decode: read.extend(name for name, _ in images) or decode(images)
    made.convert()
    assert made.predict(samples).tolist() == labels.tolist()
    assert len(read) == 40
    assert not {f"{name}/{number:02d}.jpg" for name in ("dark", "light") for number in range(4, 25, 5)} & set(read)
    assert len(answered) > 1


def out_of_memory_is_distinguished_from_other_errors():
    made = predictor("lenet", "fp32")
    errors = tf.errors
    for error, expected in (
        (errors.ResourceExhaustedError(None, None, "OOM when allocating"), inference.OutOfMemoryError),
        (errors.InternalError(None, None, f"Failed copying input tensor: {UNCOPIED}."), inference.OutOfMemoryError),
        (errors.InternalError(None, None, "CUDA is unwell"), errors.InternalError),
    ):

        def fail(_samples, error=error):
            raise error

        made.predicted = fail
        try:
            made.predict(np.zeros((1, 32, 32, 3), np.float32))
        except expected:
            continue
        raise AssertionError(error)


all_precisions_agree_with_fp32()
int8_is_int8_throughout()
weights_are_rounded()
several_batches_are_answered_in_order()
training_and_inference_images_do_not_overlap()
out_of_memory_is_distinguished_from_other_errors()
