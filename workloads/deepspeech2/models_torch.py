"""Deep Speech 2 in PyTorch: two convolutions over a spectrogram, bidirectional GRUs, a fully-connected layer, 29 characters.

Amodei et al., https://arxiv.org/abs/1512.02595: convolutions of 41 x 11 and 21 x 11 (frequencies x frames) with strides of 2 x 2 and 2 x 1, to
which the paper's tables refer as "2-layer 2D", batch normalization over all frames of a batch, ReLUs that end at 20, the sum of both
directions. What a layer's normalization does to its inputs' products in the paper, it does to its inputs here, as in all
implementations on cuDNN's GRU; `deepspeech2-small` has none, so that the same utterances make the same losses, however many devices
share them. `flags.SIZES` has the sizes: 7 GRUs of 1,760 and a layer of as many behind them are the TBD suite's
(https://github.com/tbd-ai/tbd-suite, deepspeech.cfg), whose study is measured with them; 5 of 800 are the defaults of
https://github.com/SeanNaren/deepspeech.pytorch until 2019. Both directions of the suite's are concatenated, and not added.

What pads an utterance in a batch reaches none of its outputs: frames after its end are set to zero before they are read, and the recurrent
layers run on packed sequences. The statistics of the convolutions' normalization count them; there is little of it in batches of
nearly equal lengths.
"""

import torch
from flags import SIZES
from speech import FREQUENCIES, OUTPUTS, halved, steps
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

CEILING = 20.0


def build(name):
    """Build a network; weights are drawn from torch's global generator, as PyTorch draws them by itself."""
    channels, depth, width, normalize = SIZES[name]
    return DeepSpeech2(channels=channels, depth=depth, width=width, normalize=normalize)


class DeepSpeech2(nn.Module):
    def __init__(self, *, channels, depth, width, normalize):
        super().__init__()
        shapes = ((1, (41, 11), (2, 2), (20, 5)), (channels, (21, 11), (2, 1), (10, 5)))
        self.convolutions = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(read, channels, kernel, stride, padding),
                nn.BatchNorm2d(channels) if normalize else nn.Identity(),
                nn.Hardtanh(0.0, CEILING, inplace=True),
            )
            for read, kernel, stride, padding in shapes
        )
        sizes = [channels * halved(halved(FREQUENCIES)), *[width] * depth]
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(size) if normalize and number else nn.Identity() for number, size in enumerate(sizes[:-1])
        )
        self.recurrent = nn.ModuleList(nn.GRU(size, width, bidirectional=True) for size in sizes[:-1])
        norm = nn.BatchNorm1d(width) if normalize else nn.Identity()
        self.full = nn.Sequential(norm, nn.Linear(width, width))
        self.activation = nn.Hardtanh(0.0, CEILING, inplace=True)
        self.output = nn.Linear(width, OUTPUTS)

    def forward(self, spectrograms, frames):
        """Log-probabilities (steps of the longest, utterances, OUTPUTS) in fp32, and how many steps each has, on the CPU.

        `spectrograms` are (utterances, FREQUENCIES, frames of the longest), the longest first; `frames` (utterances,) on the CPU.
        """
        lengths = steps(frames)
        x = spectrograms[:, None]
        inside = torch.arange(steps(spectrograms.shape[-1])) < lengths[:, None]
        inside = inside[:, None, None].to(x.device, non_blocking=True)
        for convolution in self.convolutions:
            x = convolution(x).masked_fill(~inside, 0.0)
        packed = pack_padded_sequence(x.flatten(1, 2).permute(2, 0, 1), lengths)
        sizes = packed.batch_sizes  # utterances that are still there in each step
        for norm, layer in zip(self.norms, self.recurrent, strict=True):
            both, _ = layer(PackedSequence(norm(packed.data), sizes))
            packed = PackedSequence(both.data.unflatten(1, (2, -1)).sum(1), sizes)
        scores = self.output(self.activation(self.full(packed.data)))
        return pad_packed_sequence(PackedSequence(scores.float().log_softmax(1), sizes))

    def multiplied(self, frames):
        """(weights, positions) of the layers for so many frames, as `flop.per_sample` takes them."""
        from with_pytorch.operations import recurrent

        high, count = FREQUENCIES, steps(frames)
        found = []
        for convolution in self.convolutions:
            high = halved(high)
            found.append((convolution[0].weight.numel(), high * count))
        return [
            *found,
            *recurrent(self.recurrent, count),
            (self.full[1].weight.numel(), count),
            (self.output.weight.numel(), count),
        ]
