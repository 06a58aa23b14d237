"""JPEGs decoded and augmented on the GPU by NVIDIA DALI, ahead of the training, for the PyTorch program.

    worker processes    read each file and its header, and draw its crop: same random numbers, same crop as `data_torch.augment`
    DALI                decodes a batch, with the GPU's JPEG engines if it has any, then crops, resizes, flips and normalizes it
    the training        takes a finished batch; its stream waits for DALI's, the host does not

A worker checks a truncated file with Pillow first, because a GPU would fill the missing part with grey. A file that DALI refuses ends its
pipeline: if Pillow refuses it too, its name is reported at the end, the next image of the batch replaces it, and a new pipeline takes over.
Pixels differ from Pillow's by rounding.
"""

import io
import itertools
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import torch
from arguments import refuse
from class_folders import MEAN, STD, is_whole
from data_torch import draw_crop
from PIL import Image
from with_pytorch.loading import PREFETCHED, UNDECODABLE, Endless, Jpegs, loader

# Finished batches in DALI's queue: the training takes one while the next is made.
FINISHED = 2


class Encoded(Jpegs):
    """Undecoded JPEGs of class folders, each with a new random crop and flip: (bytes, crop, name), label, skipped names."""

    def read(self, name):
        jpeg = (self.root / name).read_bytes()
        with Image.open(io.BytesIO(jpeg)) as image:
            if not is_whole(jpeg):
                image.load()
            return jpeg, draw_crop(*image.size), name


@dataclass(frozen=True)
class EncodedBatch:
    """A batch before decoding: JPEGs as byte arrays, and each image's crop, label and name; `skipped` names the images left out."""

    jpegs: list
    crops: tuple
    labels: torch.Tensor
    names: tuple
    skipped: list

    def pipeline_input(self):
        """The pipeline's input: JPEGs, and for each image the crop's first and last (y, x) and whether to flip it."""
        first = np.array([(crop.top, crop.left) for crop in self.crops], np.float32)
        last = first + np.array([(crop.height, crop.width) for crop in self.crops], np.float32)
        return self.jpegs, list(first), list(last), [np.int32(crop.flip) for crop in self.crops]

    def with_replacements(self, bad):
        """Replace each image at a place in `bad` with the next good one of the batch, or with the first good one if none follows."""
        good = [place for place in range(len(self.names)) if place not in bad]
        if not good:
            raise RuntimeError(f"none of the {len(self.names)} images of a batch decodes")
        places = [next((place for place in good if place >= wanted), good[0]) for wanted in range(len(self.names))]
        jpegs, crops, names = ([of[place] for place in places] for of in (self.jpegs, self.crops, self.names))
        skipped = self.skipped + [self.names[place] for place in bad]
        return replace(self, jpegs=jpegs, crops=crops, names=names, labels=self.labels[places], skipped=skipped)


def collate(drawn):
    """Join JPEGs into one tensor, since each tensor takes a file descriptor from worker to training; return it with their ends and the rest."""
    jpegs, crops, names = zip(*(read for read, *_ in drawn), strict=True)
    ends = list(itertools.accumulate(map(len, jpegs)))
    labels = torch.tensor([label for _, label, _ in drawn])
    skipped = [name for *_, names in drawn for name in names]
    return torch.frombuffer(bytearray(b"".join(jpegs)), dtype=torch.uint8), ends, crops, labels, names, skipped


def undecodable(jpeg):
    """Whether Pillow can't decode a byte array either."""
    try:
        with Image.open(io.BytesIO(jpeg.tobytes())) as image:
            image.load()
    except UNDECODABLE:
        return True
    return False


def check_dali():
    """Refuse if DALI is not installed."""
    try:
        import nvidia.dali  # noqa: F401
    except ImportError as error:
        refuse(f"--decode=gpu needs NVIDIA DALI, which can't be imported here ({error}); ask for --decode=cpu")


class Decoded:
    """Endless batches of a rank's share of the images, epoch after epoch, decoded, augmented and normalized on the device.

    At most `ahead` batches are prefetched, most of them as JPEGs.
    """

    def __init__(self, dataset, sampler, *, batch, workers, device, layout):
        self.size, self.batch, self.threads = dataset.image_size, batch, max(workers, 1)
        self.device, self.channels_last = device, layout == torch.channels_last
        self.ahead = PREFETCHED * workers + FINISHED + 1
        self.decoded = 0
        self.skipped = set()
        self.encoded = Endless(loader(dataset, sampler, batch=batch, workers=workers, device=device, collate=collate))
        self.to_feed_again, self.in_pipeline = deque(), deque()  # batches to feed again; batches in the pipeline
        self.output = None  # DALI's output of the previous batch, whose memory is read until `copied`
        self.copied = torch.cuda.Event() if device.type == "cuda" else None
        self.pipeline = self.build()

    def build(self):
        from nvidia.dali import fn, pipeline_def, types

        on_gpu = self.device.type == "cuda"

        @pipeline_def(
            batch_size=self.batch,
            num_threads=self.threads,
            device_id=torch.cuda.current_device() if on_gpu else None,
            prefetch_queue_depth=FINISHED,
        )
        def augmented():
            jpegs, first, last, flip = fn.external_source(self.feed, num_outputs=4)
            images = fn.decoders.image(jpegs, device="mixed" if on_gpu else "cpu", output_type=types.RGB)
            size = (self.size, self.size)
            images = fn.resize(images, size=size, roi_start=first, roi_end=last, interp_type=types.INTERP_LINEAR)
            layout = "HWC" if self.channels_last else "CHW"
            return fn.crop_mirror_normalize(images, mirror=flip, mean=MEAN, std=STD, output_layout=layout)

        return augmented()

    def feed(self):
        self.in_pipeline.append(self.to_feed_again.popleft() if self.to_feed_again else self.next_batch())
        return self.in_pipeline[-1].pipeline_input()

    def next_batch(self):
        joined, ends, crops, labels, names, skipped = next(self.encoded)
        joined = joined.numpy()
        jpegs = [joined[start:end] for start, end in itertools.pairwise([0, *ends])]
        return EncodedBatch(jpegs, crops, labels, names, skipped)

    def __next__(self):
        if self.copied:
            self.copied.synchronize()
        self.output = None
        try:
            (made,) = self.pipeline.run()
        except RuntimeError as error:
            self.rebuild(error)
            (made,) = self.pipeline.run()
        self.output = made.as_tensor()
        images = torch.from_dlpack(self.output).clone()
        if self.copied:
            self.copied.record()
        drawn = self.in_pipeline.popleft()
        self.decoded += len(drawn.labels)
        self.skipped.update(drawn.skipped)
        images = images.permute(0, 3, 1, 2) if self.channels_last else images
        return images, drawn.labels.to(self.device, non_blocking=True)

    def rebuild(self, error):
        """Drop the failed pipeline's images that Pillow can't decode either, and build a new pipeline; re-raise if there are none."""
        found = [[place for place, jpeg in enumerate(one.jpegs) if undecodable(jpeg)] for one in self.in_pipeline]
        if not any(found):
            raise error
        self.to_feed_again = deque(
            one.with_replacements(bad) if bad else one for one, bad in zip(self.in_pipeline, found, strict=True)
        )
        self.in_pipeline.clear()
        self.pipeline = self.build()
