"""Batches of utterances for the MXNet program: synthetic ones that stay on the devices, or a folder of WAV files and transcripts.

Each device has its own utterances, like a rank, and thus its own longest utterance.
"""

import itertools

import speech
from flags import SIZES
from models_mxnet import packing
from wav_folder import open_folder
from with_mxnet.shim import mx


def copy_to_device(batch, context):
    """Copy a `speech.Batch` to a device: spectrograms, steps, rows and places for the network, texts and their lengths for the loss."""
    lengths = speech.steps(batch.frames)
    parts = (batch.spectrograms, lengths, *packing(lengths), batch.texts, batch.characters)
    return [mx.nd.array(part, ctx=context, dtype="int32" if part.dtype == "int32" else "float32") for part in parts]


def copy_to_devices(batches, contexts):
    """Copy each device's batch to it: for each part of a batch, a list with one array per device."""
    return tuple(map(list, zip(*map(copy_to_device, batches, contexts), strict=True)))


class Synthetic:
    """The synthetic batches of this process, repeated endlessly; `units` counts the seconds of audio so far."""

    def __init__(self, args, ranks, contexts):
        own = [
            speech.synthetic_batches(
                args.seed, batch=args.batch, longest_s=args.longest, pairs=SIZES[args.model].suite, **share
            )
            for share in shares(ranks, contexts)
        ]
        batches = [
            (copy_to_devices(parts, contexts), sum(part.seconds for part in parts)) for parts in zip(*own, strict=True)
        ]
        self.batches = itertools.cycle(batches)
        self.units = 0.0

    def __next__(self):
        batch, seconds = next(self.batches)
        self.units += seconds
        return batch


class UtteranceBatches(mx.gluon.data.Dataset):
    def __init__(self, folder, own, *, pairs):
        self.folder, self.own, self.pairs = folder, own, pairs

    def __len__(self):
        return len(self.own[0])

    def __getitem__(self, place):
        parts = [[self.folder.read(int(number)) for number in own[place]] for own in self.own]
        return [speech.collate(part, pairs=self.pairs) for part in parts]


def unwrap(items):
    """Unpack the single item that the loader requests at a time."""
    (item,) = items
    return item


class Wavs:
    """Endless batches of this process' share of a folder; worker processes compute the spectrograms."""

    def __init__(self, args, ranks, contexts):
        folder, own = open_folder(args, shares(ranks, contexts))
        order = (
            [int(place)] for epoch in itertools.count() for place in speech.shuffled(args.seed, epoch, len(own[0]))
        )
        loader = mx.gluon.data.DataLoader(
            UtteranceBatches(folder, own, pairs=SIZES[args.model].suite),
            batch_sampler=order,
            batchify_fn=unwrap,
            num_workers=args.loader_workers,
        )
        self.contexts, self.skipped = contexts, sorted(folder.skipped)
        self.batches = iter(loader)
        self.decoded, self.units = 0, 0.0

    def __next__(self):
        batches = next(self.batches)
        self.decoded += sum(len(batch.frames) for batch in batches)
        self.units += sum(batch.seconds for batch in batches)
        return copy_to_devices(batches, self.contexts)


def shares(ranks, contexts):
    first, world_size = ranks.rank * len(contexts), ranks.processes * len(contexts)
    return [{"rank": first + number, "world_size": world_size} for number in range(len(contexts))]
