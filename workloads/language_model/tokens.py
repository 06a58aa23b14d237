"""Input of language models: tokens drawn from a seed, or windows of a file of tokens. NumPy only.

A file contains only tokens, each an unsigned 16-bit integer, little endian, like nanoGPT's data sets; `dlscale data tokens` makes
one from any files, one token per byte.

Synthetic sequence number i depends only on the seed and i, a file's windows on the seed and the step: each rank takes its stretch of every
global batch, so that one device with 2b and two devices with b train on the same sequences.
"""

import zlib
from pathlib import Path

import numpy as np
from arguments import refuse

BATCHES = 8  # distinct synthetic ones, which repeat
MASK, MASKED = 103, 0.15  # number of [MASK] in BERT's vocabulary, and the share that is predicted
SHARED = 1 << 32  # first of the sequences on which all ranks compute the same loss


def sequences(seed, *, first, count, length, vocabulary):
    """Draw (count, length + 1) tokens in int64; the probability of token k is about 1 / (k + 1), as for words of a language (Zipf)."""
    drawn = [np.random.default_rng((seed, first + row)).random(length + 1) for row in range(count)]
    return ((vocabulary + 1) ** np.stack(drawn)).astype(np.int64) - 1


def with_targets(rows):
    """Split (count, length + 1) tokens into the (count, length) inputs and the token after each."""
    return rows[:, :-1], rows[:, 1:]


def masked_count(length):
    """Number of tokens in a sequence that BERT predicts."""
    return max(1, round(MASKED * length))


def masked(rows, *, seed, vocabulary):
    """Mask (count, length + 1) tokens: BERT's (count, length) inputs, and (count, 2, masked) places and original tokens.

    The places depend only on the seed and the sequence, as if masked in advance. Of ten places, eight become [MASK], one any token, and
    one stays unchanged.
    """
    read = rows[:, :-1].copy()
    targets = np.empty((len(read), 2, masked_count(read.shape[1])), np.int64)
    for row, (places, wanted) in zip(read, targets, strict=True):
        random = np.random.default_rng((seed, zlib.crc32(row.tobytes())))
        places[:] = np.sort(random.permutation(len(row))[: len(places)])
        wanted[:] = row[places]
        fate, other = random.random(len(places)), random.integers(0, vocabulary, len(places))
        row[places] = np.where(fate < 0.8, MASK, np.where(fate < 0.9, other, wanted))
    return read, targets


class Synthetic:
    """A rank's synthetic batches (batch, length + 1), repeated endlessly."""

    def __init__(self, seed, *, batch, rank, ranks, length, vocabulary):
        self.own = [
            sequences(seed, first=(number * ranks + rank) * batch, count=batch, length=length, vocabulary=vocabulary)
            for number in range(BATCHES)
        ]
        self.step = 0

    def __next__(self):
        self.step += 1
        return self.own[(self.step - 1) % BATCHES]


class Windows:
    """Batches (batch, length + 1) of windows of a file, which is memory-mapped; `decoded` counts the windows."""

    def __init__(self, path, seed, *, batch, rank, ranks, length, vocabulary):
        if not Path(path).is_file() or Path(path).stat().st_size <= 2 * length or Path(path).stat().st_size % 2:
            refuse(
                f"--data={path} is no file of more than {length} tokens of 16 bits; `dlscale data tokens` writes one"
            )
        self.tokens = np.memmap(path, dtype="<u2", mode="r")
        self.path, self.seed, self.batch, self.first, self.together = path, seed, batch, rank * batch, ranks * batch
        self.length, self.vocabulary = length, vocabulary
        self.step = self.decoded = 0

    def __next__(self):
        random = np.random.default_rng((self.seed, self.step))
        starts = random.integers(0, len(self.tokens) - self.length, self.together)[self.first : self.first + self.batch]
        rows = np.stack([self.tokens[start : start + self.length + 1] for start in starts]).astype(np.int64)
        if rows.max() >= self.vocabulary:
            refuse(f"--data={self.path} has token {rows.max()}, the model's vocabulary ends at {self.vocabulary - 1}")
        self.step += 1
        self.decoded += self.batch
        return rows
