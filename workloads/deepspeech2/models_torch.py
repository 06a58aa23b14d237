"""Deep Speech 2 in PyTorch: two convolutions over a spectrogram, bidirectional GRUs, a fully-connected layer, 29 characters.

Amodei et al., https://arxiv.org/abs/1512.02595: convolutions of 41 x 11 and 21 x 11 (frequencies x frames) with strides of 2 x 2 and 2 x 1, the
"2-layer 2D" of the paper's tables; batch normalization over all frames of a batch; ReLUs clipped at 20; the sum of both
directions. The paper normalizes the products of a layer's inputs; here, the inputs themselves are normalized, as in all
implementations on cuDNN's GRU. `deepspeech2-small` has no normalization, so that the same utterances yield the same losses on any number of
devices. `flags.SIZES` has the sizes: 7 GRUs of 1,760 and a layer of the same width after them are the TBD suite's
(https://github.com/tbd-ai/tbd-suite, deepspeech.cfg), with which its study was measured; 5 of 800 are the defaults of
https://github.com/SeanNaren/deepspeech.pytorch until 2019. `deepspeech2-tbd` also has the suite's other layers (arch_deepspeech.py and
stt_layer_gru.py of https://github.com/apache/mxnet/tree/v1.9.x/example/speech_recognition, the suite's origin): seven layers per
direction, whose outputs are concatenated once; convolutions without padding along the frequencies; outputs for pairs of letters. The suite
also normalizes within the GRUs, with a scale per time step, which cuDNN's GRU can't.

Padding in a batch does not affect an utterance's outputs: frames after its end are zeroed before they are read, and the recurrent
layers run on packed sequences. Only the statistics of the convolutions' normalization include padding, of which batches of
nearly equal lengths have little.
"""

import torch
from flags import SIZES, geometry
from speech import OUTPUTS, PAIRED_OUTPUTS, steps
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

CEILING = 20.0


def build(name):
    """Build a network, with PyTorch's default weights from torch's global generator."""
    return DeepSpeech2(**SIZES[name]._asdict())


class Summed(nn.Module):
    """Bidirectional layers, each followed by the sum of its directions."""

    def __init__(self, read, depth, width, *, normalize):
        super().__init__()
        sizes = [read, *[width] * (depth - 1)]
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(size) if normalize and number else nn.Identity() for number, size in enumerate(sizes)
        )
        self.layers = nn.ModuleList(nn.GRU(size, width, bidirectional=True) for size in sizes)

    def forward(self, packed, lengths):
        del lengths
        sizes = packed.batch_sizes  # utterances still running at each step
        for norm, layer in zip(self.norms, self.layers, strict=True):
            both, _ = layer(PackedSequence(norm(packed.data), sizes))
            packed = PackedSequence(both.data.unflatten(1, (2, -1)).sum(1), sizes)
        return packed


class Stacks(nn.Module):
    """A separate stack of layers per direction, concatenated along the width after the last."""

    def __init__(self, read, depth, width, *, normalize):
        super().__init__()
        del normalize  # not between the layers
        self.ahead, self.back = (nn.GRU(read, width, depth) for _ in range(2))

    def forward(self, packed, lengths):
        sizes = packed.batch_sizes
        turn = reversal(lengths, sizes).to(packed.data.device, non_blocking=True)
        ahead, _ = self.ahead(packed)
        back, _ = self.back(PackedSequence(packed.data[turn], sizes))
        return PackedSequence(torch.cat([ahead.data, back.data[turn]], 1), sizes)


def reversal(lengths, sizes):
    """Permutation of a packed batch's rows that reverses each utterance: (rows,), its own inverse."""
    first = sizes.cumsum(0) - sizes
    step = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    utterance = torch.arange(len(step)) - first[step]
    return first[lengths[utterance] - 1 - step] + utterance


class DeepSpeech2(nn.Module):
    def __init__(self, *, channels, depth, width, normalize, suite=False):
        super().__init__()
        shapes, self.heights = geometry(channels, suite=suite)
        self.convolutions = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(read, channels, kernel, stride, padding),
                nn.BatchNorm2d(channels) if normalize else nn.Identity(),
                nn.Hardtanh(0.0, CEILING, inplace=True),
            )
            for read, kernel, stride, padding in shapes
        )
        read = channels * self.heights[-1]
        self.recurrent = (Stacks if suite else Summed)(read, depth, width, normalize=normalize)
        joined = 2 * width if suite else width
        norm = nn.BatchNorm1d(joined) if normalize else nn.Identity()
        self.full = nn.Sequential(norm, nn.Linear(joined, width))
        self.activation = nn.Hardtanh(0.0, CEILING, inplace=True)
        self.output = nn.Linear(width, PAIRED_OUTPUTS if suite else OUTPUTS)

    def forward(self, spectrograms, frames):
        """Log-probabilities (steps of the longest, utterances, outputs) in fp32, and each utterance's number of steps, on the CPU.

        `spectrograms` are (utterances, FREQUENCIES, frames of the longest), the longest first; `frames` (utterances,) on the CPU.
        """
        lengths = steps(frames)
        x = spectrograms[:, None]
        inside = torch.arange(steps(spectrograms.shape[-1])) < lengths[:, None]
        inside = inside[:, None, None].to(x.device, non_blocking=True)
        for convolution in self.convolutions:
            x = convolution(x).masked_fill(~inside, 0.0)
        packed = self.recurrent(pack_padded_sequence(x.flatten(1, 2).permute(2, 0, 1), lengths), lengths)
        scores = self.output(self.activation(self.full(packed.data)))
        return pad_packed_sequence(PackedSequence(scores.float().log_softmax(1), packed.batch_sizes))

    def multiplied(self, frames):
        """(weights, positions) of the layers for `frames` frames, as expected by `flop.per_sample`."""
        from with_pytorch.operations import recurrent

        count = steps(frames)
        found = [
            (convolution[0].weight.numel(), high * count)
            for convolution, high in zip(self.convolutions, self.heights, strict=True)
        ]
        return [
            *found,
            *recurrent(self.recurrent, count),
            (self.full[1].weight.numel(), count),
            (self.output.weight.numel(), count),
        ]
