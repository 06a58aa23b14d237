"""The loop of a program that infers, the same for every framework. Standard library and syntax of Python 3.6 only at import.

    infer(predictor, events, args)

loads samples, trains the network for --fit iterations, notes what it predicts in fp32, converts it to --precision, finds a batch that
fits into memory, measures, and holds the predictions against labels and against those in fp32. One process, one device, one batch at a
time. The program hands over an object with

    library(most)      (samples, labels): at most `most` distinct samples as a NumPy array on the host, samples first, decoded and cut as
                       `class_folders.central_square` says but not yet normalized (bytes); evenly spread over the validation part of
                       `class_folders.split`. With synthetic data fp32 samples from number 0 on (`synthetic.samples`) and None for labels
    fit(iterations)    train the network in fp32 on the training part: Adam at `FIT_RATE`, batches of `FIT_BATCH`, augmented as ever
    convert()          make of the fp32 network the one that answers in --precision; int8 is calibrated on `CALIBRATION` samples of the
                       training part, or synthetic ones. Until then `predict` uses the fp32 network
    predict(samples)   the class of the largest score of each, a NumPy array of whole numbers on the host. The samples are a slice of the
                       library, of any length from 1 on. To bring them to the device, to normalize them and to wait for the answer is
                       part of it. Where the device has not enough memory it raises `OutOfMemoryError` and holds nothing of the attempt
    overcommits        whether memory that is not there is promised, and the process killed later: true on CPUs, false on GPUs
    free_bytes()       what a GPU has free, or None where the framework can't tell

and emits before it `run_start` with `start_fields`, after it `data`, where samples are real, and `run_stop`.

What is measured: a batch is answered when its predictions are on the host. `step_seconds` are these latencies, by the wall clock of the
host: the batch lies in the host's memory, and decoding it is in no figure, as in MLPerf Inference, whose samples are loaded before. Each
batch is waited for before the next is handed in. Throughput is samples by the seconds of the windows, which hold besides only what it
took to cut the batch out of the library. Batches of real samples go through the library round and round, synthetic ones are the same
each time.

How many samples are asked for is iterations x batch. Where the batch is more than memory holds, more and smaller batches serve exactly as
many; the last may be smaller. Windows have --window batches of the size that is used.
"""

import sys
import time

from arguments import refuse
from control_group import free_bytes
from loop import Batches
from profiling import host_memory

MOST = 10000  # distinct samples that are decoded; at 224 pixels they take 1.5 GB
LEAST_REAL = 1024  # of which so many, if there are, are looked at even where fewer are served: they are what accuracy is counted on
CHUNK = 32  # samples at a time where nothing is measured
FIT_BATCH = 32
FIT_RATE = 3e-4  # of Adam: networks without normalization layers learn with it, those with them need no schedule
CALIBRATION = 128
TRIALS = (8, 32)  # batches from which the memory of a larger one is reckoned
SHARE = 0.8  # of a host's free memory that a batch may take
CLOSE = 50  # a GPU's largest batch is found to within one part in so many


class OutOfMemoryError(Exception):
    """The device has not enough memory for a batch."""


def check(args):
    """Refuse what no program that infers can do."""
    if args.devices != 1:
        refuse(f"--devices={args.devices}: inference runs on one device; start one process a device")
    if args.fit and args.data == "synthetic":
        refuse(f"--fit={args.fit} needs real samples to learn from; give a folder of class folders as --data")


def start_fields(args, *, parameters, flop_per_sample, **shape: object):
    """Fields of `run_start`: of the operations only those of the pass forward, of the batch what was asked for."""
    return {
        "world_size": 1,
        "batch_per_device": args.batch,
        "global_batch": args.batch,
        "iterations": args.iterations,
        "warmup": args.warmup,
        **shape,
        "parameters": parameters,
        "seed": args.seed,
        "gradient_bytes": None,
        "flop_per_sample": flop_per_sample and {"forward": flop_per_sample["forward"], "backward": 0},
    }


class Library:
    """Samples that are decoded, and batches of them."""

    def __init__(self, samples, labels):
        self.samples, self.labels = samples, labels
        self.held = None, None

    def __len__(self):
        return len(self.samples)

    def batch(self, first, count):
        """Cut `count` samples from number `first` on, round and round; synthetic ones always from the first on."""
        start = first % len(self) if self.labels is not None else 0
        if start + count <= len(self):
            return self.samples[start : start + count]
        place, batch = self.held
        if place != (start, count):
            import numpy as np

            self.held = None, None  # not two of them at once
            batch = np.take(self.samples, range(start, start + count), axis=0, mode="wrap")
            self.held = (start, count), batch
        return batch

    def batches(self, sizes):
        """Batches of these sizes, one after the other."""
        first = 0
        for size in sizes:
            yield self.batch(first, size)
            first += size


def infer(predictor, events, args):
    """Do what the command line asks for: ``(batches, samples)`` that were measured."""
    asked = args.iterations * args.batch
    began = time.monotonic()
    most = min(MOST, args.batch) if args.data == "synthetic" else min(MOST, max(LEAST_REAL, asked))
    library = Library(*predictor.library(most))
    events.phase("data", began)
    if args.fit:
        began = time.monotonic()
        predictor.fit(args.fit)
        events.phase("fit", began)
    reference = None if library.labels is None else answers(predictor, library)
    began = time.monotonic()
    predictor.convert()
    events.phase("convert", began)
    began = time.monotonic()
    used, reason = fitting(predictor, library, args.batch)
    events.phase("batch", began)
    events.emit("batch", asked=args.batch, used=used, reason=reason)
    done = serve(predictor, events, library, samples=asked, batch=used, warmup=args.warmup, window=args.window)
    if reference is not None:
        hold(events, answers(predictor, library), reference, library.labels, args)
    return done, asked


def serve(predictor, events, library, *, samples, batch, warmup, window):
    """Answer `warmup` batches and then as many as have `samples`; emit first_step, warmup_end, net, usage and window. Gives how many."""
    sizes = [batch] * (samples // batch) + [samples % batch] * (samples % batch > 0)
    batches = Batches(library.batches([batch] * warmup + sizes))
    predictor.predict(next(batches))
    events.emit("first_step")
    for _ in range(warmup - 1):
        predictor.predict(next(batches))
    events.net("start")
    events.usage("start")
    batches.waited()
    events.emit("warmup_end", iterations=warmup)
    edge = time.monotonic()
    for index, done in enumerate(range(0, len(sizes), window)):
        latencies = []
        for _ in sizes[done : done + window]:
            handed_in = next(batches)
            start = time.perf_counter()
            predictor.predict(handed_in)
            latencies.append(time.perf_counter() - start)
        start, edge = edge, time.monotonic()
        events.emit(
            "window",
            index=index,
            start=start,
            iterations=len(latencies),
            samples=sum(sizes[done : done + window]),
            seconds=edge - start,
            step_seconds=latencies,
            input_seconds=batches.waited(),
        )
    events.net("stop")
    events.usage("stop")
    return len(sizes)


def answers(predictor, library):
    """What the network says of each sample of the library, in order, as whole numbers."""
    found = []
    for first in range(0, len(library), CHUNK):
        found += map(int, predictor.predict(library.samples[first : first + CHUNK]))
    return found


def hold(events, found, reference, labels, args):
    """Emit how many predictions are right, beside those of the fp32 network."""
    labels = list(map(int, labels))
    events.emit(
        "accuracy",
        precision=args.precision,
        samples=len(labels),
        correct=equal(found, labels),
        reference="fp32",
        reference_correct=equal(reference, labels),
        agree=equal(found, reference),
        fit_iterations=args.fit,
    )


def equal(some, others):
    """In how many places two lists of equal length are equal."""
    return sum(one == other for one, other in zip(some, others))  # noqa: B905 - Python 3.6 knows no strict


def fitting(predictor, library, asked):
    """Give ``(batch, reason)``: the largest batch up to `asked` that memory holds, and why it is smaller, or None."""
    if predictor.overcommits:
        return on_host(predictor, library, asked)
    free = predictor.free_bytes()
    if fits(predictor, library, asked):
        return asked, None
    used, too_many = 0, asked
    while too_many - used > max(1, used // CLOSE):
        middle = (used + too_many) // 2
        if fits(predictor, library, middle):
            used = middle
        else:
            too_many = middle
    if not used:
        refuse("the device has not enough memory for a batch of 1; ask for a smaller network or smaller images")
    held = "" if free is None else f", which had {gib(free)} free"
    return used, f"{asked} samples do not fit into the memory of the device{held}"


def fits(predictor, library, count):
    """Whether the device has memory for a batch."""
    try:
        predictor.predict(library.batch(0, count))
    except OutOfMemoryError:
        return False
    return True


def on_host(predictor, library, asked):
    """Find `fitting` on a host, which kills who takes too much: reckoned from smaller batches, whose memory grows by the sample.

    Where the kernel tells no peak of this process, what was asked for is believed to fit.
    """
    small, large = TRIALS
    if asked <= large:
        return asked, None
    predictor.predict(library.batch(0, small))  # what the first one allocates is no batch's
    peaks = []
    for count in TRIALS:
        host_memory()  # the peak begins anew
        predictor.predict(library.batch(0, count))
        peaks.append(host_memory()[0]["peak_bytes"])
    if None in peaks:
        print("the kernel tells no peak of this process: whether a batch fits is not known", file=sys.stderr)
        return asked, None
    # A batch longer than the library is a copy; slices of it are not, and those of the trials were none.
    sample = library.samples[0].nbytes if asked > len(library) else 0
    each = max((peaks[1] - peaks[0]) / (large - small), 1) + sample
    free = free_bytes()
    if each * asked <= SHARE * free:
        return asked, None
    used = max(1, int(SHARE * free / each))
    return used, f"{asked} samples take {gib(each * asked)}, the host has {gib(free)} free"


def gib(size):
    return f"{size / 2**30:.1f} GiB"
