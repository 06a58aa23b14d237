"""Inside the image: Deep Speech 2 has the catalog's layers, reads each utterance independently, and has the CTC loss.

Prevents a layer that is missing or of another width; padding that affects an utterance's outputs; directions that are not added; a loss with
another divisor or blank; a loss that fails on GPUs while FLOP is counted; an operation count without the recurrent layers; training that does not
lower the loss; ranks that read the same files or count padding.
"""

import itertools
import json
import math
import sys
import tempfile
import wave
from pathlib import Path
from types import SimpleNamespace

import alone
import numpy as np
import speech
import torch
from data_torch import copy_to_device
from flags import SIZES, parser
from flop import per_sample
from models_torch import DeepSpeech2, build
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from train_pytorch import Recognizer
from with_pytorch.operations import recurrence, recurrence_backward
from with_pytorch.ranks import Alone

CATALOG = json.loads(sys.argv[2])["deepspeech2"]


def parameters(channels, depth, width, normalize, suite):
    """By hand: 41 x 11 and 21 x 11 kernels; GRUs with three gates, two biases each and two directions; 161 frequencies become 41.

    With the suite's layers they become 61 and 21, and there are 758 outputs: 29, and pairs of 27.
    """
    found = 41 * 11 * channels + channels + 21 * 11 * channels**2 + channels
    read = (21 if suite else 41) * channels
    for _ in range(depth):
        found += 2 * 3 * (read * width + width**2 + 2 * width)
        read = width
    joined, outputs = (2 * width, 758) if suite else (width, 29)
    found += joined * width + width + outputs * width + outputs
    # One weight and one bias per channel, after both convolutions and before each layer that reads a recurrent one.
    return found + (4 * channels + 2 * (joined if suite else width * depth) if normalize else 0)


def layers_match_the_catalog():
    assert set(CATALOG) == set(SIZES)
    for name, sizes in SIZES.items():
        with torch.device("meta"):
            net = build(name)
        assert sum(p.numel() for p in net.parameters()) == parameters(*sizes) == CATALOG[name][1], name


def padding_affects_no_output():
    """Utterances of three lengths get the same probabilities in a batch as alone."""
    torch.manual_seed(1)
    net = build("deepspeech2-small")
    utterances = [speech.synthetic(1, number, longest_s=1.5) for number in range(3)]
    batch = copy_to_device(speech.collate(utterances), torch.device("cpu"))
    assert len(set(batch.frames.tolist())) == 3
    with torch.no_grad():
        told, steps = net(batch.spectrograms, batch.frames)
        assert told.dtype == torch.float32
        assert told.shape == (steps.max(), 3, 29)
        for row, frames in enumerate(batch.frames.tolist()):
            own, _ = net(batch.spectrograms[row : row + 1, :, :frames], batch.frames[row : row + 1])
            assert own.shape[0] == steps[row] == (frames + 1) // 2
            assert (own[:, 0] - told[: steps[row], row]).abs().max() < 1e-5
            assert (own.exp().sum(2) - 1).abs().max() < 1e-5


def both_directions_are_added():
    """A step's output depends on earlier and on later frames."""
    torch.manual_seed(1)
    net = DeepSpeech2(channels=2, depth=1, width=4, normalize=False)
    sound = torch.randn(1, speech.FREQUENCIES, 41, requires_grad=True)
    told, _ = net(sound, torch.tensor([41]))
    (gradient,) = torch.autograd.grad(told[10].square().sum(), sound)
    reached = gradient[0].abs().sum(0) > 0
    assert reached.all(), reached
    # Beyond the convolutions' reach, only through the recurrent layer.
    assert gradient[0, :, 0].any()
    assert gradient[0, :, 40].any()


class Rank(Alone):
    """One of two ranks that do not communicate."""

    world_size = 2

    def __init__(self, rank):
        self.rank = rank


def recognizer(*words, ranks=None):
    return alone.training(Recognizer, parser, *alone.SPEECH, *words, ranks=ranks)


class Operators(TorchDispatchMode):
    """Notes the operators, and changes which of them run, as the mode that counts FLOP does."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(str(operator))
        return operator(*args, **(kwargs or {}))


def the_loss_sums_over_all_alignments():
    """Two utterances, of three and two steps, with texts of two characters and one: the sum over every output sequence with that text."""
    torch.manual_seed(1)
    told = torch.randn(3, 2, 29).log_softmax(2)
    batch = SimpleNamespace(
        spectrograms=None,
        frames=torch.tensor([6, 4]),
        texts=torch.tensor([[5, 5], [7, 0]]),
        characters=torch.tensor([2, 1]),
    )
    total = 0.0
    for row, (steps, text) in enumerate([(3, (5, 5)), (2, (7,))]):
        likely = 0.0
        for said in itertools.product({0, *text}, repeat=steps):
            letters = [one for one, before in zip(said, (None, *said), strict=False) if one not in {before, 0}]
            if tuple(letters) == text:
                likely += math.exp(sum(told[step, row, one].item() for step, one in enumerate(said)))
        total -= math.log(likely)
    made = recognizer()
    with Operators() as used:
        lost = made.loss(lambda *_: (told, torch.tensor([3, 2])), batch)
    assert abs(lost.item() - total / 2) < 1e-4, (lost, total / 2)
    # `_ctc_loss.Tensor` would refuse lengths on the CPU if the rest is on a GPU.
    assert [name for name in used.names if "ctc" in name] == ["aten._ctc_loss.default"], used.names
    # The same letter twice needs three steps: in two, the loss is infinite, and must not be hidden.
    batch.characters = torch.tensor([2, 1])
    lost = made.loss(lambda *_: (told[:2], torch.tensor([2, 2])), batch)
    assert lost.item() == math.inf


def operations_match_pytorchs_counter():
    """In a batch without padding, the count equals PyTorch's, which sees the recurrent layers' products on a CPU."""
    net = build("deepspeech2-small")
    frames = 60
    with FlopCounterMode(display=False) as forward:
        told, _ = net(torch.randn(1, speech.FREQUENCIES, frames), torch.tensor([frames]))
    with FlopCounterMode(display=False) as backward:
        told.sum().backward()
    ours = per_sample(net.multiplied(frames))
    assert abs(ours["forward"] / forward.get_total_flops() - 1) < 0.01, (ours, forward.get_flop_counts())
    assert abs(ours["backward"] / backward.get_total_flops() - 1) < 0.03, (ours, backward.get_flop_counts())
    # cuDNN's operator over 30 steps of all utterances and both directions of a layer, without biases and states.
    layer = net.recurrent.layers[0]
    weights = [tuple(weight.shape) for weight in layer.parameters()]
    products = sum(math.prod(shape) for shape in weights if len(shape) == 2)
    assert recurrence((30, 328), weights, 4, None) == 2 * 30 * products
    assert recurrence((10, 3, 328), weights) == 2 * 30 * products
    assert recurrence_backward((30, 328), weights, 4, None) == 4 * 30 * products


def training_lowers_the_loss():
    made = recognizer()
    losses = [made.step().item() for _ in range(16)]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[8:]) < 0.8 * sum(losses[:8]), losses
    untouched = [name for name, p in made.net.named_parameters() if not p.grad.any()]
    assert not untouched, f"{untouched} get no gradient"
    # Each synthetic batch twice: the seconds of audio are exact to the sample.
    samples = sum(speech.duration(1, number, longest_s=1.2) for number in range(8 * 2))
    assert abs(made.batches.source.units - 2 * samples / speech.RATE) < 1e-9


def the_gradients_norm_is_clipped():
    made = recognizer("--clip-norm=0.5")
    made.step()
    norm = math.sqrt(sum(p.grad.square().sum().item() for p in made.parameters))
    assert abs(norm - 0.5) < 1e-4, norm


def a_folder_of_audio_is_read():
    """Nine utterances and an unusable file: each of two ranks gets two batches of two per epoch, and the shortest utterance is left out."""
    root = Path(tempfile.mkdtemp())
    random = np.random.default_rng(1)
    lengths = [16_000 + 800 * number for number in range(9)]
    for number, samples in enumerate([*lengths, 200]):
        with wave.open(str(root / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, speech.RATE, 0, "NONE", ""))
            file.writeframes(random.integers(-9_000, 9_000, samples).astype("<i2").tobytes())
        (root / f"{number}.txt").write_text("what was said")
    for workers in (0, 2):
        seconds = []
        for rank in (0, 1):
            made = recognizer(f"--data={root}", f"--loader-workers={workers}", ranks=Rank(rank))
            source = made.batches.source
            assert all(math.isfinite(made.step().item()) for _ in range(4))
            assert (source.decoded, source.skipped) == (8, {"9.wav"})
            seconds.append(source.units)
        # Both epochs, without the shortest utterance, which fills no batch.
        assert abs(sum(seconds) - 2 * sum(lengths[1:]) / speech.RATE) < 1e-9, seconds


layers_match_the_catalog()
padding_affects_no_output()
both_directions_are_added()
the_loss_sums_over_all_alignments()
operations_match_pytorchs_counter()
training_lowers_the_loss()
the_gradients_norm_is_clipped()
a_folder_of_audio_is_read()
