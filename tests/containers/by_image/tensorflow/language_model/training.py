"""Inside the image: BERT has the published parameters and the counted operations, reads both ways, and learns in each precision.

Prevents: an embedding separate from the output layer's, a parameter without a gradient, operations that are counted but not run, a head that
predicts at other places than the masked ones, weights that start differently from PyTorch's, weights that do not follow from the seed.
"""

import json
import math
import sys

import alone
import numpy as np
from costs import flop_per_token
from flags import SIZES, parser, residual_deviation
from flop import per_sample
from models_tensorflow import build
from tokens import masked_count
from train_tensorflow import MODELS, Bert
from with_tensorflow.layers import multiplied
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import set_precision, set_seed, tf


def training(*words):
    return Bert(parser("").parse_args([*alone.ONE, *alone.LANGUAGE, "--model=bert-tiny", *words]), tf, Alone("/cpu:0"))


def shapes_and_operations_match_the_catalog():
    catalog = json.loads(sys.argv[2])["language_model"]
    assert set(catalog) == set(MODELS)
    for model, (_, parameters) in catalog.items():
        size = SIZES[model]
        for length in (size.longest, 128):
            net = build(size, length)
            assert sum(math.prod(v.shape) for v in net.trainable_variables) == parameters, model
            # The layers' products, plus by hand those with the embedding, only at masked places. The head's layer, too, is only at these.
            scores = 2 * masked_count(length) * size.width * size.vocabulary
            forward = per_sample(multiplied(net))["forward"] + scores
            assert flop_per_token(model, length=length)["forward"] == forward / length, model


def weights_start_like_pytorchs():
    set_seed(1)
    net, size = build(SIZES["bert-base"], 8), SIZES["bert-base"]
    *_, head, _, _, _, _ = net.trainable_variables  # then its bias, its normalization, and the scores' bias
    for variable in net.trainable_variables:
        value, name = variable.numpy(), variable.path
        if value.ndim == 1:
            assert (value == ("gamma" in name)).all(), name
            continue
        ends = value.shape == (size.width, size.width) and variable is not head
        expected = residual_deviation(size) if ends else 0.02
        spread = 4 / math.sqrt(2 * value.size)  # of an estimate of a standard deviation
        assert abs(value.std() / expected - 1) < max(0.005, spread), (name, value.std(), expected)


def it_reads_both_ways_and_predicts_at_the_places():
    net = build(SIZES["bert-tiny"], 32)
    tokens = np.random.default_rng(1).integers(0, 512, (2, 32), np.int32)
    changed = np.concatenate((tokens[:, :20], (tokens[:, 20:] + 1) % 512), axis=1)
    places = np.array([[0, 4, 9, 13, 19], [1, 3, 5, 7, 18]], np.int32)
    whole = [net([read, places]).numpy() for read in (tokens, changed)]
    assert whole[0].shape == (2, masked_count(32), 512)
    assert not np.allclose(*whole, atol=1e-4)
    turned = net([tokens, places[:, ::-1].copy()]).numpy()
    np.testing.assert_allclose(turned[:, ::-1], whole[0], rtol=1e-4, atol=1e-5)


def it_learns_in_each_precision():
    for words, precision in ((), "fp32"), (("--precision=bf16",), "bf16"), (("--xla",), "fp32"):
        set_precision(precision)
        made = training("--batch=8", *words)
        before = [variable.numpy() for variable in made.variables]
        lost = made.read([made.step() for _ in range(16)])
        # Untrained, the loss is that of a uniform guess.
        assert abs(lost[0] - math.log(512)) < 0.15, lost
        assert lost[-1] < 0.9 * lost[0], (words, lost)
        for old, variable in zip(before, made.variables, strict=True):
            assert variable.dtype == tf.float32
            assert (old != variable.numpy()).any(), variable.name
    set_precision("fp32")


shapes_and_operations_match_the_catalog()
weights_start_like_pytorchs()
it_reads_both_ways_and_predicts_at_the_places()
it_learns_in_each_precision()
