"""Inside the image: inference counts correct answers, with a network trained through Caffe's Python interface.

Prevents labels shifted against images, answers with dropout or batch statistics, statistics that let numbers overflow fp32,
weights that are lost between the solver and the network, answers that depend on the batch.
"""

import tempfile
from pathlib import Path

import caffe
import inference
import judged
import numpy as np
from flags import infer_parser
from infer_caffe import Predictor

WORDS = [*judged.COMMON, "--batch=3", "--iterations=1", "--window=1", "--data=synthetic", "--precision=fp32"]


def predictor(model, folder):
    return Predictor(infer_parser("").parse_args([*WORDS, f"--model={model}"]), caffe, Path(folder), nvidia=False)


def answers_do_not_depend_on_the_batch():
    for model in ("resnet18", "googlenet"):
        with tempfile.TemporaryDirectory() as folder:
            made = predictor(model, folder)
            samples, labels = made.library(5)
            assert labels is None
            answers = made.predict(samples)
            assert answers.shape == (5,)
            scores = made.net.blobs[made.scores].data.copy()
            assert np.isfinite(scores).all()
            assert np.abs(scores).max() < 1000, f"{model}: {scores}"
            for row in range(5):
                assert made.predict(samples[row : row + 1]) == answers[row]
                np.testing.assert_allclose(made.net.blobs[made.scores].data[0], scores[row], rtol=1e-3, atol=1e-4)


def a_batch_beyond_free_memory_is_refused():
    """As on a GPU. LeNet's blobs at 32 pixels, by hand: 3x32x32, 20x28x28, 20x14x14, 50x10x10, 50x5x5, 500 and 3 numbers of 4 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        made = predictor("lenet", folder)
        each = 4 * (3072 + 15680 + 3920 + 5000 + 1250 + 500 + 3)
        assert made.bytes_per_sample == each
        made.free = 10 * each
        samples, _ = made.library(9)
        assert made.predict(samples[:8]).shape == (8,)
        try:
            made.predict(samples)
        except inference.OutOfMemoryError:
            return
        raise AssertionError("nine samples do not fit into four fifths of what ten take")


answers_do_not_depend_on_the_batch()
a_batch_beyond_free_memory_is_refused()
judged.infer("caffe", judged.folder(), "fp32")
judged.infer_for_a_time("caffe")
