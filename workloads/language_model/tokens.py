"""What a language model reads: token numbers drawn from a seed, or windows of a file of them. NumPy only.

A file is nothing but the numbers, each an unsigned 16-bit integer, little endian, as nanoGPT's data sets are; `dlscale data tokens` writes
one of any files, a token a byte.

Sequence number i of the synthetic ones depends on the seed and on i alone, the windows of a file on the seed and the step: of every global
batch each rank takes its stretch, so that one device with 2b and two devices with b train on the same.
"""

import zlib
from pathlib import Path

import numpy as np
from arguments import refuse

BATCHES = 8  # synthetic ones, which come again and again
MASK, MASKED = 103, 0.15  # number of [MASK] in BERT's vocabulary, and the share that is predicted
SHARED = 1 << 32  # first of the sequences on which all ranks compute one loss


def sequences(seed, *, first, count, length, vocabulary):
    """Draw (count, length + 1) tokens in int64: token k with a probability of about 1 / (k + 1), as words of a language have it (Zipf)."""
    drawn = [np.random.default_rng((seed, first + row)).random(length + 1) for row in range(count)]
    return ((vocabulary + 1) ** np.stack(drawn)).astype(np.int64) - 1


def followed(rows):
    """Of (count, length + 1) tokens the (count, length) that are read, and those that follow each."""
    return rows[:, :-1], rows[:, 1:]


def masked_of(length):
    """How many tokens of a sequence BERT predicts."""
    return max(1, round(MASKED * length))


def masked(rows, *, seed, vocabulary):
    """Of (count, length + 1) tokens the (count, length) that BERT reads, and (count, 2, masked): where some were masked, and what they were.

    Which ones follows from the seed and the sequence itself, as if they were prepared before. Of ten eight become [MASK], one any token, and
    one stays what it is.
    """
    read = rows[:, :-1].copy()
    targets = np.empty((len(read), 2, masked_of(read.shape[1])), np.int64)
    for row, (places, wanted) in zip(read, targets, strict=True):
        random = np.random.default_rng((seed, zlib.crc32(row.tobytes())))
        places[:] = np.sort(random.permutation(len(row))[: len(places)])
        wanted[:] = row[places]
        fate, other = random.random(len(places)), random.integers(0, vocabulary, len(places))
        row[places] = np.where(fate < 0.8, MASK, np.where(fate < 0.9, other, wanted))
    return read, targets


class Synthetic:
    """The synthetic batches (batch, length + 1) of a rank."""

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
    """Batches (batch, length + 1) of windows of a file, which is mapped and read where they lie; `decoded` counts them."""

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
