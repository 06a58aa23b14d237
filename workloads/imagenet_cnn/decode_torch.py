"""JPEGs decoded on the GPU by nvJPEG, ahead of the training, for the PyTorch program.

    worker processes    read each file and its header, and draw its crop: the same draws from the same numbers as `data_torch.augment`
    a thread            on a CUDA stream of its own hands a batch to nvJPEG, cuts, resizes and flips on the GPU, and normalizes
    the training        takes a finished batch; its stream waits for the event that follows the batch, the host does not

A file that ends too early is looked at by Pillow in the worker, since nvJPEG fills with grey what is missing; what nvJPEG takes not (a
photograph in CMYK, say) Pillow decodes. One that both refuse is named at the end, and its place goes to the next of its batch. Pixels differ
from Pillow's by the inverse transform, the upsampling of colour, and by rounding: Pillow resizes in bytes, here it is done in fp32.
"""

import contextlib
import io
import itertools
import queue
import threading

import torch
from arguments import refuse
from class_folders import is_whole
from data_torch import Normalize, draw
from PIL import Image
from torch.nn.functional import avg_pool2d, interpolate
from with_pytorch.loading import PREFETCHED, UNDECODABLE, Endless, Jpegs, leave_with, loader, pixels

# Finished batches that wait for the training: one to take while the next is made.
FINISHED = 2
# How many pixels of a side may become one before it is halved by means: beyond some 18 the resize kernel has too little shared memory.
# Pillow offers the same as `reducing_gap`, and calls 3 indistinguishable.
MOST = 8


class Encoded(Jpegs):
    """JPEGs of class folders as they lie on disk, each with a new random crop and flip: (bytes, crop, name), label, skipped names."""

    def read(self, name):
        jpeg = (self.root / name).read_bytes()
        with Image.open(io.BytesIO(jpeg)) as image:
            if not is_whole(jpeg):
                image.load()
            return jpeg, draw(*image.size), name


def collate(drawn):
    """Join JPEGs: all bytes in one tensor, the end of each in it, (count, 5) crops, labels, names, and names of what was skipped.

    One tensor, since each takes a file descriptor from worker to training.
    """
    jpegs, crops, names = zip(*(read for read, *_ in drawn), strict=True)
    ends = list(itertools.accumulate(map(len, jpegs)))
    skipped = [name for *_, names in drawn for name in names]
    labels = torch.tensor([label for _, label, _ in drawn])
    return torch.frombuffer(bytearray(b"".join(jpegs)), dtype=torch.uint8), ends, crops, labels, names, skipped


def nvjpeg(device):
    """Find what decodes on this GPU, torchvision's nvJPEG, from a list of JPEGs to one of (3, height, width) bytes; refuse where there is none.

    torchvision 0.29 announces that TorchCodec will have it in its place; releases for PyTorch 2.6 to 2.15 have this call.
    """
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, OSError, RuntimeError) as error:
        refuse(f"--decode=gpu needs torchvision, which can't be imported here ({error}); ask for --decode=cpu")

    def decode(jpegs):
        return decode_jpeg(jpegs, mode=ImageReadMode.RGB, device=device)

    smallest = io.BytesIO()
    Image.new("RGB", (16, 16)).save(smallest, "JPEG")
    try:
        decode([torch.frombuffer(bytearray(smallest.getvalue()), dtype=torch.uint8)])
    except (RuntimeError, AttributeError) as error:
        sentence = str(error).splitlines()[0]
        refuse(f"--decode=gpu needs nvJPEG, which this torchvision lacks ({sentence}); ask for --decode=cpu")
    return decode


def decoded(jpegs, decode, device):
    """Decode each of a batch, (3, height, width) bytes on the device; None for one that neither `decode` nor Pillow takes."""
    try:
        return decode(jpegs)
    except RuntimeError:  # of a batch with one that it can't decode it gives none
        return [alone(jpeg, decode, device) for jpeg in jpegs]


def alone(jpeg, decode, device):
    try:
        return decode([jpeg])[0]
    except RuntimeError:
        try:
            with Image.open(io.BytesIO(jpeg.numpy().tobytes())) as image:
                return pixels(image.convert("RGB")).to(device)
        except UNDECODABLE:
            return None


def cut(image, crop, size):
    """Cut a part out of (3, height, width) bytes and resize it: (1, 3, size, size) in fp32, from 0 to 255, not flipped.

    Bilinear over all pixels that become one, as Pillow's.
    """
    part = image[None, :, crop.top : crop.top + crop.height, crop.left : crop.left + crop.width].float()
    while max(part.shape[2:]) > MOST * size:
        part = avg_pool2d(part, 2, ceil_mode=True)
    return interpolate(part, (size, size), mode="bilinear", antialias=True)


class Ahead:
    """What `make` gives, tuples that begin with tensors, made by a thread on a stream of its own, `FINISHED` of them ahead."""

    def __init__(self, make, *, device):
        self.make, self.device = make, device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.finished = queue.Queue(FINISHED)
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.work, name="decode", daemon=True)

    def work(self):
        with contextlib.ExitStack() as stack:
            if self.stream:
                torch.cuda.set_device(self.device)  # each thread has its own
                stack.enter_context(torch.cuda.stream(self.stream))
            while not self.closing.is_set():
                try:
                    self.finished.put((self.make(), self.stream and self.stream.record_event()))
                except Exception as error:  # noqa: BLE001 - whatever it is, the training has to end with it
                    self.finished.put((error, None))
                    return

    def __next__(self):
        first = not self.thread.ident
        if first:
            self.thread.start()
        made, event = self.finished.get()
        if first:
            # A thread in the middle of a call to CUDA while the interpreter ends would crash it.
            leave_with(self.close)
        if isinstance(made, Exception):
            raise made
        if event:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(event)
            for tensor in made[:2]:
                tensor.record_stream(stream)  # its memory is this stream's until it is done with it
        return made

    def close(self):
        """End the thread; what it has finished is lost."""
        self.closing.set()
        while self.thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self.finished.get(timeout=0.1)


class Decoded:
    """Endless batches of a rank's share of the images, epoch after epoch, decoded and augmented on the device, and normalized.

    At most `ahead` of them lie ready before they are asked for, most of those as JPEGs. `decode` is what `nvjpeg` gives.
    """

    def __init__(self, dataset, sampler, *, batch, workers, device, layout, decode):
        self.size, self.device, self.decode = dataset.image_size, device, decode
        self.normalize = Normalize(device=device, layout=layout)
        self.ahead = PREFETCHED * workers + FINISHED + 1
        self.decoded = 0
        self.skipped = set()
        loaded = loader(dataset, sampler, batch=batch, workers=workers, device=device, collate=collate)
        self.encoded = Endless(loaded)
        self.batches = Ahead(self.make, device=device)

    def __next__(self):
        images, labels, skipped = next(self.batches)
        self.decoded += len(labels)
        self.skipped.update(skipped)
        return images, labels

    def make(self):
        """The next batch and its labels on the device, and the names of what was skipped."""
        joined, ends, crops, labels, names, skipped = next(self.encoded)
        # nvJPEG writes on a stream of torchvision's own, into memory that this stream's last batch may still be read from.
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        jpegs = [joined[start:end] for start, end in itertools.pairwise([0, *ends])]
        images = decoded(jpegs, self.decode, self.device)
        bad = [name for name, image in zip(names, images, strict=True) if image is None]
        places = filled(images) if bad else range(len(images))
        parts = torch.cat([cut(images[place], crops[place], self.size) for place in places])
        flips = torch.tensor([crops[place].flip for place in places]).to(self.device, non_blocking=True)
        parts = torch.where(flips.view(-1, 1, 1, 1), parts.flip(3), parts)
        labels = (labels[list(places)] if bad else labels).to(self.device, non_blocking=True)
        return self.normalize(parts), labels, skipped + bad


def filled(images):
    """By place of a batch, the place of its image: its own, or for one that is None the next's, the first after the last."""
    known = [place for place, image in enumerate(images) if image is not None]
    if not known:
        raise RuntimeError(f"none of the {len(images)} images of a batch decodes")
    return [next((place for place in known if place >= wanted), known[0]) for wanted in range(len(images))]
