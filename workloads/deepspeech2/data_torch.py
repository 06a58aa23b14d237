"""Batches of utterances for the PyTorch program: synthetic ones that stay on the device, or a folder of WAV files and transcripts."""

import itertools
from dataclasses import dataclass

import speech
import torch
from flags import SIZES
from torch.utils.data import DataLoader, Dataset
from wav_folder import open_folder
from with_pytorch.loading import Endless


@dataclass(frozen=True)
class OnDevice:
    """A `speech.Batch` for a step: spectrograms and texts on the device, lengths on the CPU, where PyTorch expects them."""

    spectrograms: torch.Tensor
    frames: torch.Tensor
    texts: torch.Tensor
    characters: torch.Tensor
    seconds: float


def copy_to_device(batch, device, *, pinned=False):
    """Copy a batch to the device; with `pinned`, from pinned memory and without waiting."""
    arrays = [torch.from_numpy(array) for array in (batch.spectrograms, batch.frames, batch.texts, batch.characters)]
    spectrograms, frames, texts, characters = arrays
    if pinned:
        spectrograms, texts = spectrograms.pin_memory(), texts.pin_memory()
    placement = {"device": device, "non_blocking": pinned}
    return OnDevice(spectrograms.to(**placement), frames, texts.to(**placement), characters, batch.seconds)


class Synthetic:
    """The synthetic batches of a rank, repeated endlessly; `units` counts the seconds of audio so far."""

    def __init__(self, args, ranks, device):
        share = {"batch": args.batch, "rank": ranks.rank, "world_size": ranks.world_size}
        own = speech.synthetic_batches(args.seed, **share, longest_s=args.longest, pairs=SIZES[args.model].suite)
        self.batches = itertools.cycle([copy_to_device(batch, device) for batch in own])
        self.units = 0.0

    def __next__(self):
        batch = next(self.batches)
        self.units += batch.seconds
        return batch


class UtteranceBatches(Dataset):
    def __init__(self, folder, own, *, pairs):
        self.folder, self.own, self.pairs = folder, own, pairs

    def __len__(self):
        return len(self.own)

    def __getitem__(self, index):
        return speech.collate([self.folder.read(int(number)) for number in self.own[index]], pairs=self.pairs)


class BatchOrder:
    """The order of all batches, a new one each epoch."""

    def __init__(self, seed, count):
        self.seed, self.count, self.epoch = seed, count, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(speech.shuffled(self.seed, self.epoch, self.count).tolist())

    def set_epoch(self, epoch):
        self.epoch = epoch


class Wavs:
    """Endless batches of a rank's share of a folder; worker processes compute the spectrograms."""

    def __init__(self, args, ranks, device):
        folder, (own,) = open_folder(args, [{"rank": ranks.rank, "world_size": ranks.world_size}])
        workers = args.loader_workers
        loader = DataLoader(
            UtteranceBatches(folder, own, pairs=SIZES[args.model].suite),
            batch_size=None,
            sampler=BatchOrder(args.seed, len(own)),
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        self.device, self.skipped = device, folder.skipped
        self.batches = Endless(loader)
        self.decoded, self.units = 0, 0.0

    def __next__(self):
        batch = copy_to_device(next(self.batches), self.device, pinned=self.device.type == "cuda")
        self.decoded += len(batch.frames)
        self.units += batch.seconds
        return batch
