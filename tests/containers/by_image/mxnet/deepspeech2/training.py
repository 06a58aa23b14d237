"""Inside the image: Deep Speech 2 has the catalog's layers, reads each utterance independently, and has PyTorch's losses.

Prevents different networks of one name, padding that affects an utterance's outputs, directions that are not added, an operation count
without the recurrent layers, gradients that are not clipped, wrong seconds of audio.
"""

import json
import math
import sys

import alone
import numpy as np
import recognized
import speech
from data_mxnet import copy_to_device
from flags import SIZES, Size, parser
from models_mxnet import DeepSpeech2, build, packing
from train_mxnet import Recognizer
from with_mxnet.shim import mx

CATALOG = json.loads(sys.argv[2])["deepspeech2"]
CPU = mx.cpu()
DIRECTION = ("l{}_i2h_weight", "l{}_h2h_weight", "l{}_i2h_bias", "l{}_h2h_bias")


def trained(net):
    return [p for p in net.collect_params().values() if p.grad_req != "null"]


def recognizer(*words, flags=None):
    return Recognizer(flags or parser("").parse_args([*alone.ONE, *alone.SPEECH, *words]), mx)


def layers_match_the_catalog():
    assert set(CATALOG) == set(SIZES)
    for name, size in SIZES.items():
        net = DeepSpeech2(**size._asdict())  # shapes only, no weights
        assert sum(math.prod(p.shape) for p in trained(net)) == CATALOG[name][1], name


def utterances_are_packed_in_the_order_of_their_steps():
    rows, places = packing(np.array([3, 2, 2]))
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert places.tolist() == [[0, 1, 2], [3, 4, 5], [6, 0, 0]]


def padding_affects_no_output():
    """Utterances of three lengths get the same scores in a batch as alone."""
    mx.random.seed(1)
    net = build("deepspeech2-small", [CPU])
    utterances = sorted(
        (speech.synthetic(1, number, longest_s=1.5) for number in range(3)), key=lambda one: -one.samples
    )
    spectrograms, steps, rows, places, *_ = copy_to_device(speech.collate(utterances), CPU)
    told = net(spectrograms, steps, rows, places).asnumpy()
    lengths = steps.asnumpy().astype(int)
    assert len(set(lengths)) == 3
    assert told.shape == (lengths.max(), 3, 29)
    for row, utterance in enumerate(utterances):
        own = net(*copy_to_device(speech.collate([utterance]), CPU)[:4]).asnumpy()
        assert own.shape[0] == lengths[row] == (utterance.spectrogram.shape[1] + 1) // 2
        assert np.abs(own[:, 0] - told[: lengths[row], row]).max() < 1e-5


def both_directions_are_added():
    """A step's output depends on earlier and later frames beyond the convolutions' reach."""
    mx.random.seed(1)
    net = DeepSpeech2(channels=2, depth=1, width=4, normalize=False)
    net.initialize()
    sound = mx.nd.random.normal(shape=(1, speech.FREQUENCIES, 41))
    sound.attach_grad()
    rows, places = (mx.nd.array(part, dtype="int32") for part in packing(np.array([21])))
    with mx.autograd.record():
        told = net(sound, mx.nd.array([21]), rows, places)[10].square().sum()
    told.backward()
    assert (np.abs(sound.grad.asnumpy()[0]).sum(0) > 0).all()


def operations_are_counted_as_by_hand():
    """Per second of audio, by hand: 100 frames, 50 steps; 161 frequencies become 81 and 41."""
    net = build("deepspeech2-small", [CPU])
    found = sum(weights * positions for weights, positions in net.multiplied(100))
    convolutions = 8 * 41 * 11 * 81 * 50 + 8 * 8 * 21 * 11 * 41 * 50
    recurrent = 50 * 2 * 3 * ((8 * 41 + 64) * 64 + (64 + 64) * 64)
    assert found == convolutions + recurrent + 50 * (64 * 64 + 64 * 29)


def training_lowers_the_loss():
    made = recognizer()
    losses = [made.read([made.step()])[0] for _ in range(16)]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[8:]) < 0.8 * sum(losses[:8]), losses
    untouched = [p.name for p in trained(made.net) if not p.grad().asnumpy().any()]
    assert not untouched, f"{untouched} get no gradient"
    # Each synthetic batch twice: the seconds of audio are exact to the sample.
    samples = sum(speech.duration(1, number, longest_s=1.2) for number in range(8 * 2))
    assert abs(made.batches.source.units - 2 * samples / speech.RATE) < 1e-9


def the_gradients_norm_is_clipped():
    made = recognizer("--clip-norm=0.5")
    made.step()
    # With two utterances, gradients are kept as sums, twice the mean.
    norm = math.sqrt(sum(float((p.grad().asnumpy() ** 2).sum()) for p in trained(made.net)))
    assert abs(norm - 2 * 0.5) < 1e-4, norm


def parameters(net):
    """All parameters except those of normalizations, in the order of `recognized.weights`."""
    found = [p for convolution in net.convolutions for p in (convolution.weight, convolution.bias)]
    for both in zip(net.forwards, net.backwards, strict=True):
        for stack in both:
            depth = len(stack.collect_params(".*i2h_weight").keys())
            found += [getattr(stack, name.format(number)) for number in range(depth) for name in DIRECTION]
    return [*found, net.full[1].weight, net.full[1].bias, net.output.weight, net.output.bias]


def losses_match_pytorchs():
    found = {}
    for size, numbers in recognized.SIZES.items():
        SIZES[recognized.MODEL] = Size(*numbers)
        made = recognizer(flags=recognized.flags(parser))
        own = parameters(made.net)
        for parameter, value in zip(own, recognized.weights([p.shape for p in own]), strict=True):
            parameter.set_data(mx.nd.array(value))
        found[size] = [made.read([made.step()])[0] for _ in range(recognized.STEPS)]
    recognized.check(found)


layers_match_the_catalog()
utterances_are_packed_in_the_order_of_their_steps()
padding_affects_no_output()
both_directions_are_added()
operations_are_counted_as_by_hand()
training_lowers_the_loss()
the_gradients_norm_is_clipped()
losses_match_pytorchs()
