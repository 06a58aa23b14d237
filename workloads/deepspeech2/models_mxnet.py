"""Deep Speech 2 in MXNet Gluon: layer by layer the network of `models_torch`, with the same sources and initial distributions.

On CPUs, Gluon's fused GRU does not support packed sequences, so each direction is a separate layer: sequences are reversed
before and after the backward one, each utterance within its own length. Padding is read after an utterance in both directions, and its
outputs are dropped. Between the recurrent layers a batch is packed, (steps of all utterances, width), as normalization and dense layers need
it: `rows` and `places` map between packed rows and steps of utterances.
"""

import math

import numpy as np
from flags import SIZES, geometry
from speech import OUTPUTS, PAIRED_OUTPUTS, steps
from with_mxnet.shim import mx

nn, rnn = mx.gluon.nn, mx.gluon.rnn
CEILING = 20.0
EPSILON = 1e-5


def build(name, contexts):
    """Build a network with its weights on each of `contexts`, drawn from MXNet's global generator."""
    net = DeepSpeech2(**SIZES[name]._asdict())
    net.initialize(ctx=contexts)
    return net


def packing(lengths):
    """Return (rows, places), the mapping between padded and packed steps of utterances that have `lengths` steps.

    rows: (steps of all,) in int32, each packed row's index among the (steps of the longest x utterances).
    places: (steps of the longest, utterances) in int32, the packed row of each; 0 after an utterance's end.
    """
    inside = np.arange(lengths.max())[:, None] < lengths
    rows = np.flatnonzero(inside).astype(np.int32)
    places = np.zeros(inside.size, np.int32)
    places[rows] = np.arange(len(rows))
    return rows, places.reshape(inside.shape)


def uniform(inputs):
    """PyTorch's default initializer for weights and biases of a layer with `inputs` inputs."""
    return mx.init.Uniform(1 / math.sqrt(inputs))


def dense(inputs, units):
    return nn.Dense(
        units, in_units=inputs, weight_initializer=uniform(inputs), bias_initializer=uniform(inputs), flatten=False
    )


def gru(inputs, width, layers=1):
    """One direction of `layers` recurrent layers, over (steps, utterances, inputs)."""
    names = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
    return rnn.GRU(width, layers, input_size=inputs, **{f"{name}_initializer": uniform(width) for name in names})


def norm(width, *, wanted):
    """Batch normalization of `width` columns or maps if `wanted`, otherwise an identity."""
    return nn.BatchNorm(in_channels=width, epsilon=EPSILON) if wanted else nn.HybridLambda(lambda _, x: x)


class DeepSpeech2(mx.gluon.HybridBlock):
    def __init__(self, *, channels, depth, width, normalize, suite=False):
        super().__init__()
        shapes, self.heights = geometry(channels, suite=suite)
        sizes = [channels * self.heights[-1], *[width] * (0 if suite else depth - 1)]
        layers, joined, self.suite = depth if suite else 1, 2 * width if suite else width, suite
        with self.name_scope():
            self.convolutions, self.maps = nn.HybridSequential(), nn.HybridSequential()
            self.norms, self.forwards, self.backwards = (nn.HybridSequential() for _ in range(3))
            for read, kernel, stride, padding in shapes:
                drawn = uniform(read * math.prod(kernel))
                self.convolutions.add(
                    nn.Conv2D(
                        *(channels, kernel, stride, padding),
                        in_channels=read,
                        weight_initializer=drawn,
                        bias_initializer=drawn,
                    )
                )
                self.maps.add(norm(channels, wanted=normalize))
            for number, size in enumerate(sizes):
                self.norms.add(norm(size, wanted=normalize and number))
                self.forwards.add(gru(size, width, layers))
                self.backwards.add(gru(size, width, layers))
            self.full = nn.HybridSequential()
            self.full.add(norm(joined, wanted=normalize), dense(joined, width))
            self.output = dense(width, PAIRED_OUTPUTS if suite else OUTPUTS)

    def hybrid_forward(self, F, spectrograms, lengths, rows, places):  # noqa: N803 - Gluon's own name
        """Scores (steps of the longest, utterances, outputs) in fp32; CTC applies the softmax.

        `spectrograms` are (utterances, FREQUENCIES, frames of the longest), `lengths` (utterances,) their numbers of steps in fp32; `rows` and
        `places` come from `packing`.
        """
        x = spectrograms.expand_dims(1)
        for convolution, normal in zip(self.convolutions, self.maps, strict=True):
            x = F.clip(normal(convolution(x)), 0.0, CEILING)
            numbers = F.contrib.arange_like(x, axis=3).astype("float32").reshape((1, -1))
            inside = F.broadcast_lesser(numbers, lengths.reshape((-1, 1)))
            x = F.broadcast_mul(x, inside.astype("float32").expand_dims(1).expand_dims(1))
        packed = F.take(x.transpose((3, 0, 1, 2)).reshape((-3, -3)), rows)
        for normal, ahead, back in zip(self.norms, self.forwards, self.backwards, strict=True):
            steps = F.take(normal(packed), places)
            turned = F.SequenceReverse(steps, lengths, use_sequence_length=True)
            read_back = F.SequenceReverse(back(turned), lengths, use_sequence_length=True)
            both = F.concat(ahead(steps), read_back, dim=2) if self.suite else ahead(steps) + read_back
            packed = F.take(both.reshape((-3, 0)), rows)
        scores = self.output(F.clip(self.full(packed), 0.0, CEILING))
        return F.take(scores, places)

    def multiplied(self, frames):
        """(weights, positions) of the layers for `frames` frames, as expected by `flop.per_sample`."""
        count = steps(frames)
        found = [(c.weight, high * count) for c, high in zip(self.convolutions, self.heights, strict=True)]
        for stack in (*self.forwards, *self.backwards):
            found += [(p, count) for p in stack.collect_params(".*_weight").values()]
        found += [(self.full[1].weight, count), (self.output.weight, count)]
        return [(math.prod(weight.shape), positions) for weight, positions in found]
