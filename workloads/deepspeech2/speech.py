"""Utterances for Deep Speech 2: their characters, spectrograms, batches of nearly equal length, and synthetic ones. NumPy only.

A spectrogram is the input of the paper's networks (https://arxiv.org/abs/1512.02595, section 3.1 and figure 2): windows of 20 ms every 10 ms of
audio at 16 kHz, so 161 frequencies, here log(1 + magnitude) with mean 0 and deviation 1 over an utterance. Characters are
the 26 letters, space and apostrophe; with CTC's blank, number 0, there are 29 outputs.

Synthetic utterance number i depends only on the seed and i. Lengths are distributed as in LibriSpeech's training utterances, 1 to 17 seconds with
a mean of 12.3 and most of them near the end: 960.9 hours in 281,241 utterances (https://www.openslr.org/12, its SUMMARY). The density is
proportional to (length - 1 s)^1.4, which yields that mean: 1 + 16 x 2.4 / 3.4 = 12.3. A text has 14 characters
a second, as in LibriSpeech, drawn uniformly; a spectrogram is standard normal noise.
"""

import math
from dataclasses import dataclass

import numpy as np

RATE = 16_000
WINDOW, STEP = 320, 160  # samples of audio
FREQUENCIES = WINDOW // 2 + 1
BLANK = 0
CHARACTERS = " 'abcdefghijklmnopqrstuvwxyz"  # numbers 1 to 28
OUTPUTS = 1 + len(CHARACTERS)
# The TBD suite's outputs: these, and each pair of letters within a word; the suite's own list has only the pairs in its corpus.
LETTERS = len(CHARACTERS) - 1
PAIRED_OUTPUTS = OUTPUTS + LETTERS**2
SHORTEST_S = 1.0
POWER = 2.4
CHARACTERS_PER_S = 14
# Synthetic batches that stay on a device and repeat in the same order.
BATCHES = 8
SHARED = 1 << 32  # first of the utterances on which all ranks compute the same loss


@dataclass(frozen=True)
class Batch:
    """Utterances, longest first.

    Attributes:
        spectrograms: (utterances, FREQUENCIES, frames of the longest) in fp32, zero after each utterance's end.
        frames: (utterances,) in int64, each utterance's length.
        texts: (utterances, characters of the longest) in int64, BLANK after each text's end.
        characters: (utterances,) in int64, each text's length.
        seconds: of audio, without padding.
    """

    spectrograms: np.ndarray
    frames: np.ndarray
    texts: np.ndarray
    characters: np.ndarray
    seconds: float


@dataclass(frozen=True)
class Utterance:
    """Audio as (FREQUENCIES, frames) in fp32, its text as (characters,) in int64, and its length in samples of audio."""

    spectrogram: np.ndarray
    text: np.ndarray
    samples: int


def frames(samples):
    """Number of windows in `samples` samples of audio."""
    return 1 + (samples - WINDOW) // STEP


def halved(size):
    """Size of a map after a convolution with a stride of 2 and padding by half its kernel on both sides."""
    return (size + 1) // 2


def steps(frames):
    """Number of the network's outputs for `frames` frames; its first convolution has a stride of 2 in time."""
    return halved(frames)


def needed(text):
    """Minimum number of outputs for CTC to emit a text: one per character, and a blank between two equal ones."""
    return len(text) + int(np.count_nonzero(text[1:] == text[:-1]))


def encode(words):
    """Numbers of a text's characters in lower case, (characters,) in int64; characters other than the 28 are dropped."""
    return np.array([CHARACTERS.index(c) + 1 for c in words.lower() if c in CHARACTERS], np.int64)


def paired(text):
    """Encode an encoded text as pairs of letters, word by word; spaces and a word's odd last letter stay single."""
    found, first = [], None
    for number in map(int, text):
        space = CHARACTERS[number - 1] == " "
        if first is not None and not space:
            found.append(OUTPUTS + LETTERS * (first - 2) + number - 2)
            first = None
            continue
        found += [] if first is None else [first]
        found += [number] if space else []
        first = None if space else number
    return np.array(found if first is None else [*found, first], np.int64)


def spectrogram(audio):
    """Spectrogram (FREQUENCIES, frames) in fp32 of audio between -1 and 1, (samples,), at least one window long."""
    windows = np.lib.stride_tricks.sliding_window_view(audio, WINDOW)[::STEP]
    magnitudes = np.abs(np.fft.rfft(windows * np.hamming(WINDOW), axis=1)).T
    found = np.log1p(magnitudes)
    return ((found - found.mean()) / max(found.std(), 1e-6)).astype(np.float32)


def duration(seed, number, *, longest_s):
    """Length of synthetic utterance `number` in samples of audio; `longest_s` is at least SHORTEST_S."""
    share = np.random.default_rng((seed, 0, number)).random() ** (1 / POWER)
    return round(RATE * (SHORTEST_S + (longest_s - SHORTEST_S) * share))


def synthetic(seed, number, *, longest_s):
    """Draw synthetic utterance `number`, with a text short enough for CTC to emit in its time."""
    samples = duration(seed, number, longest_s=longest_s)
    random = np.random.default_rng((seed, 1, number))
    count = frames(samples)
    text = random.integers(1, OUTPUTS, max(1, CHARACTERS_PER_S * samples // RATE))
    return Utterance(random.standard_normal((FREQUENCIES, count), np.float32), text, samples)


def collate(utterances, *, pairs=False):
    """Batch utterances; `pairs` encodes texts as pairs of letters."""
    longest_first = sorted(utterances, key=lambda one: -one.spectrogram.shape[1])
    lengths = np.array([one.spectrogram.shape[1] for one in longest_first])
    targets = [paired(one.text) if pairs else one.text for one in longest_first]
    characters = np.array([len(text) for text in targets])
    spectrograms = np.zeros((len(lengths), FREQUENCIES, lengths[0]), np.float32)
    texts = np.full((len(lengths), characters.max()), BLANK, np.int64)
    for row, one in enumerate(longest_first):
        spectrograms[row, :, : lengths[row]] = one.spectrogram
        texts[row, : characters[row]] = targets[row]
    return Batch(spectrograms, lengths, texts, characters, sum(one.samples for one in utterances) / RATE)


def buckets(samples, *, batch, rank, world_size):
    """Numbers of a rank's utterances in each global batch: (batches, batch).

    Utterances are sorted by length and cut into batches, to keep padding small. A rank takes every `world_size`-th of each
    batch, so that no rank gets only short ones. A few of the shortest utterances, too few for a batch, are left out.
    """
    order = sorted(range(len(samples)), key=lambda number: (-samples[number], number))
    together = batch * world_size
    full = len(order) // together
    return np.array(order[: full * together], np.int64).reshape(full, batch, world_size)[:, :, rank]


def shuffled(seed, epoch, count):
    """Order of `count` batches in an epoch, the same on all ranks, so that their concurrent batches have similar lengths.

    To stabilize training, the paper's first epoch goes from short to long (SortaGrad, section 3.3); not done here, because the rate would
    drift with it.
    """
    return np.random.default_rng((seed, 2, epoch)).permutation(count)


def synthetic_batches(seed, *, batch, rank, world_size, longest_s, pairs=False):
    """Return a rank's BATCHES synthetic batches, in the order in which they repeat."""
    count = BATCHES * batch * world_size
    samples = [duration(seed, number, longest_s=longest_s) for number in range(count)]
    own = buckets(samples, batch=batch, rank=rank, world_size=world_size)
    return [
        collate([synthetic(seed, int(number), longest_s=longest_s) for number in own[index]], pairs=pairs)
        for index in shuffled(seed, 0, len(own))
    ]


def shared_batch(seed, *, batch, longest_s, pairs=False):
    return collate([synthetic(seed, SHARED + row, longest_s=longest_s) for row in range(batch)], pairs=pairs)


def frames_per_second():
    """Frames per second of audio, within a longer utterance."""
    return math.ceil(RATE / STEP)
