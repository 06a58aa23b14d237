"""Utterances on disk: WAV files of 16 kHz, one channel, 16 bits, each with a text file of the same name. NumPy and standard library.

    speaker1/0001.wav   speaker1/0001.txt   ...

Unusable files are listed and left out: another rate or format, a truncated file, audio without text or with more text than CTC
can emit in its time.
"""

import os
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import speech
from arguments import refuse


@dataclass(frozen=True)
class Listed:
    """A file of a folder: its path, and its samples of audio according to its header."""

    path: str
    samples: int


class WavFolder:
    """The utterances of a folder, sorted by name; `skipped` holds the names of unusable files."""

    def __init__(self, root):
        self.root = Path(root)
        self.utterances, self.skipped, seen = [], set(), set()
        for parent, folders, names in os.walk(root, followlinks=True):
            real = os.path.realpath(parent)
            folders[:] = [] if real in seen else sorted(folders)  # links back up would be followed forever
            for name in [] if real in seen else sorted(names):
                if name.lower().endswith(".wav"):
                    self.add(Path(parent) / name)
            seen.add(real)

    def add(self, path):
        name = path.relative_to(self.root).as_posix()
        samples = samples_in(path)
        if samples < speech.WINDOW or not 0 < speech.needed(text_of(path)) <= speech.steps(speech.frames(samples)):
            self.skipped.add(name)
        else:
            self.utterances.append(Listed(name, samples))

    def __len__(self):
        return len(self.utterances)

    @property
    def samples(self):
        return [one.samples for one in self.utterances]

    def read(self, number):
        path = self.root / self.utterances[number].path
        with wave.open(str(path)) as file:
            audio = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(1 << 15)
        return speech.Utterance(speech.spectrogram(audio), text_of(path), len(audio))


def open_folder(args, shares):
    """Open --data and divide it: numbers (batches, batch) of the utterances of each of `shares`, {rank, world_size}. Refuses too few."""
    if not Path(args.data).is_dir():
        refuse(
            f"--data={args.data} is not a folder; Deep Speech 2 reads a folder of WAV files with a .txt next to each"
        )
    folder = WavFolder(args.data)
    own = [speech.buckets(folder.samples, batch=args.batch, **share) for share in shares]
    if not len(own[0]):
        refuse(
            f"{args.data} holds {len(folder)} usable utterances and {len(folder.skipped)} unusable files, too few for "
            f"{shares[0]['world_size']} batches of {args.batch}; ask for less"
        )
    return folder, own


def samples_in(path):
    """Number of samples of audio in a file; 0 if it is not a complete WAV file of the right kind."""
    try:
        with wave.open(str(path)) as file:
            kind = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            samples = file.getnframes()
    except (OSError, EOFError, wave.Error):
        return 0
    whole = path.stat().st_size >= 2 * samples
    return samples if whole and kind == (speech.RATE, 1, 2) else 0


def text_of(path):
    """Encode the text next to a WAV file; empty if there is no file."""
    try:
        words = path.with_suffix(".txt").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        words = ""
    return speech.encode(" ".join(words.split()))
