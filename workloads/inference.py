"""The inference loop, the same for every framework. Standard library and syntax of Python 3.6 only at import.

    infer(predictor, events, args)

loads samples, trains the network for --fit iterations, records its predictions in fp32, converts it to --precision, finds a batch that
fits into memory, measures, and compares its predictions with the labels and with the fp32 ones. One process, one device. The program passes
in an object with

    library(most)      (samples, labels): at most `most` distinct samples as a NumPy array on the host, one per row, decoded and cropped
                       by `class_folders.central_square` but not normalized (bytes); evenly spread over the validation part of
                       `class_folders.split`. With synthetic data, fp32 samples from number 0 on (`synthetic.samples`), and None for labels
    fit(iterations)    train the network in fp32 on the training part: Adam at `FIT_RATE`, batches of `FIT_BATCH`, usual augmentation
    convert()          convert the fp32 network to --precision; int8 is calibrated on `CALIBRATION` samples of the training part,
                       or on synthetic ones. Before the call, answers are those of the fp32 network
    overcommits        whether allocations beyond free memory succeed and the process is killed later: true on CPUs, false on GPUs
    free_bytes()       free memory of a GPU, or None if the framework can't tell
    in_flight          batches under way concurrently: 1 if a single batch keeps the device busy
    lay_out(samples)   the same samples, placed and laid out for the fastest hand-over: batches are slices of it
    submit(samples)    start a batch of at least 1, a slice of these or of the library: copy it to the device, normalize it there, copy back
                       the class with the largest score of each sample; returns a ticket. Does not block if `in_flight` is more than 1
    collect(ticket)    wait for the result of a ticket: (classes, t), integers on the host, and the time.monotonic() at which they
                       arrived. Both methods raise `OutOfMemoryError` if the device lacks memory
    place(samples)     copy a slice to the device and wait for it; only if `in_flight` is more than 1
    run(placed)        infer on a placed slice and wait for the device; only if `in_flight` is more than 1

A subclass of `OneByOne` has `predict(samples)`, which returns the classes, in place of everything from `in_flight` on. A predictor also has

    parameters, flop_per_sample   of the network as built (`flop.per_sample`)
    decoded, skipped              number of decoded images, and names of those that would not decode
    parameter_norm()              norm of the network's weights, before or after conversion
    emit_extra(events, samples)   emit the program's own measurements of a laid-out batch, after all windows
    units                         throughput units per sample; None if the unit is the sample

Throughput is that of a busy device: with several batches in flight, one is copied to the device while another is computed. A window ends
when its last batch is answered, with later ones in flight; batches that fill the pipeline before the first window, and keep it full until
the end of the last, are not counted. Decoding is in no figure, as in MLPerf Inference, whose samples are loaded beforehand.

Latency is measured on a batch that has the device to itself: with transfer, from its samples in host memory to its classes there; without,
from its samples in device memory until the device is done. If `in_flight` is 1 (on CPUs, where one batch keeps all cores busy and
there is no transfer, and in Caffe, which does not report its transfer separately), each of the windows' batches has the device to itself:
their times are the latencies, and there are none without transfer.

Batches of real samples cycle through the library's whole batches; the synthetic batch is the same each time.

The number of samples is --iterations x --batch. If memory does not hold the requested batch, exactly as many samples are served in more and
smaller batches; the last may be smaller still. Windows have --window batches of the size used. With --iterations=0, the rate after warm-up
decides iterations and window, for --measure-seconds (`loop.pace`).
"""

import math
import sys
import time
from collections import deque
from itertools import islice, repeat, takewhile

from arguments import refuse
from control_group import free_bytes
from events import Events, finite, process_start
from loop import pace
from profiling import host_memory

MAX_SAMPLES = 10000  # distinct samples decoded; at 224 pixels they take 1.5 GB
MIN_REAL_SAMPLES = 1024  # decoded even if fewer are served, if the data has as many: accuracy is over all decoded
CHUNK = 32  # samples at a time outside of the measurement
FIT_BATCH = 32
FIT_RATE = 3e-4  # of Adam: networks without normalization layers learn at it, and those with them need no schedule
CALIBRATION = 128
TRIAL_BATCHES = (8, 32)  # batch sizes from which the memory of a larger one is extrapolated
MEMORY_SHARE = 0.8  # of a host's free memory that a batch may take
RESOLUTION = 50  # a GPU's largest batch is found to within 1/RESOLUTION
IN_FLIGHT = 4  # batches in flight on a GPU: one computed, one copied, the rest hide pauses of the host
RATE_SECONDS = 1.0  # for which the rate is measured, if it decides the iterations
MAX_REPEATS, MAX_LATENCY_SECONDS = 1000, 2.0  # limits of a latency measurement: batches, seconds


class OutOfMemoryError(Exception):
    """The device lacks memory for a batch."""


def check(args):
    """Refuse what no inference program supports."""
    if args.devices != 1:
        refuse(f"--devices={args.devices}: inference runs on one device; start one process a device")
    if not args.iterations and args.measure_seconds <= 0:
        refuse("--iterations=0 measures for --measure-seconds; set it to more than 0")
    if args.fit and args.data == "synthetic":
        refuse(f"--fit={args.fit} needs real samples to learn from; give a folder of class folders as --data")


def report(make, args, *, environment, imported):
    """Run the requested inference and emit its events, from the import's to run_stop.

    make() returns the predictor; `imported` is the time.monotonic() after the framework's import, `environment` the fields of env.
    """
    events = Events(rank=0)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment)
    predictor = make()
    events.phase("model", imported)
    flop = predictor.flop_per_sample
    events.run_start(
        args,
        world_size=1,
        parameters=predictor.parameters,
        gradient_bytes=None,
        flop_per_sample=flop and {"forward": flop["forward"], "backward": 0},
    )
    batches, samples = infer(predictor, events, args)
    if args.data != "synthetic":
        events.emit("data", decoded=predictor.decoded, skipped=sorted(predictor.skipped))
    norm = finite(predictor.parameter_norm())
    events.emit("run_stop", iterations=batches, samples=samples, parameter_norm=norm)


class OneByOne:
    """Base of predictors whose device is kept busy by one batch at a time; a subclass has `predict(samples)`, which blocks."""

    in_flight = 1
    units = None

    def lay_out(self, samples):
        return samples

    def emit_extra(self, events, samples):
        """Measure nothing more."""

    def submit(self, samples):
        return self.predict(samples), time.monotonic()

    def collect(self, ticket):
        return ticket


class Library:
    def __init__(self, samples, labels):
        self.samples, self.labels = samples, labels

    def __len__(self):
        return len(self.samples)

    def batch(self, count):
        """The first `count` samples, wrapping around if there are fewer."""
        if count <= len(self):
            return self.samples[:count]
        import numpy as np

        return np.take(self.samples, range(count), axis=0, mode="wrap")

    def whole_batches(self, count):
        """All whole batches of `count` samples in one array, wrapping around to fill at least one; of synthetic samples a single batch."""
        batches = len(self) // count if self.labels is not None else 1
        return self.batch(count * max(1, batches))


class Cycle:
    """Cycles through laid-out samples batch by batch."""

    def __init__(self, samples):
        self.samples, self.first = samples, 0

    def batches(self, sizes):
        """Batches of these sizes; one that does not fit before the end is taken from the start."""
        for size in sizes:
            if self.first + size > len(self.samples):
                self.first = 0
            yield self.samples[self.first : self.first + size]
            self.first += size


def infer(predictor, events, args):
    """Run the requested inference; return the measured ``(batches, samples)``."""
    with events.timed("data"):
        most = args.batch if args.data == "synthetic" else max(MIN_REAL_SAMPLES, args.iterations * args.batch)
        library = Library(*predictor.library(min(MAX_SAMPLES, most)))
    if args.fit:
        with events.timed("fit"):
            predictor.fit(args.fit)
    reference = None if library.labels is None else predict_all(predictor, library)
    with events.timed("convert"):
        predictor.convert()
    with events.timed("batch"):
        used, reason = fitting(predictor, library, args.batch)
    events.emit("batch", asked=args.batch, used=used, reason=reason)
    laid_out = predictor.lay_out(library.whole_batches(used))
    done = serve(predictor, events, laid_out, args, batch=used)
    predictor.emit_extra(events, laid_out[:used])
    if reference is not None:
        emit_accuracy(events, predict_all(predictor, library), reference, library.labels, args)
    return done


def pipelined(predictor, batches):
    """Keep as many batches in flight as the predictor allows; yield (classes, submitted, answered) of each in order.

    Times are time.monotonic(); a batch never counts as answered before those submitted earlier.
    """
    batches, pending, latest = iter(batches), deque(), 0.0
    while True:
        for batch in islice(batches, predictor.in_flight - len(pending)):
            pending.append((time.monotonic(), predictor.submit(batch)))
        if not pending:
            return
        submitted, ticket = pending.popleft()
        classes, answered = predictor.collect(ticket)
        latest = max(latest, answered)
        yield classes, submitted, latest


def drain(answers):
    """Exhaust what `pipelined` yields; return the time of the last answer, or None if it had no batch."""
    results = deque(answers, maxlen=1)
    return results[0][2] if results else None


def serve(predictor, events, samples, args, *, batch):
    """Answer the warm-up's batches, then the measured ones; return ``(batches, samples)`` of the measured ones.

    Emits first_step, pace, warmup_end, net, usage, window and latency. `samples` are whole batches, laid out by the predictor.
    """
    cycle = Cycle(samples)
    drain(pipelined(predictor, cycle.batches([batch])))
    events.emit("first_step")
    drain(pipelined(predictor, cycle.batches([batch] * (args.warmup - 1))))
    iterations, window = args.iterations, args.window
    if not iterations:
        each = seconds_per_batch(predictor, cycle.batches(repeat(batch)))
        batches, window = pace(each, seconds=args.measure_seconds, window=window)
        iterations = math.ceil(batches * batch / args.batch)
        events.emit("pace", iterations=iterations, window=window)
    sizes = in_batches(iterations * args.batch, batch)
    drain(pipelined(predictor, cycle.batches(sizes[-1:])))  # frameworks choose kernels at the first batch of a size
    alone = predictor.in_flight == 1
    fill, keep_full = ([], []) if alone else ([batch] * predictor.in_flight, [batch] * (predictor.in_flight - 1))
    answers = pipelined(predictor, cycle.batches(fill + sizes + keep_full))
    events.net("start")
    events.usage("start")
    edge = time.monotonic() if alone else drain(islice(answers, len(fill)))
    events.emit("warmup_end", iterations=args.warmup)
    latencies = []
    for index, first in enumerate(range(0, len(sizes), window)):
        window_sizes, start, seconds = sizes[first : first + window], edge, []
        for size, (_, submitted, answered) in zip(window_sizes, answers):  # noqa: B905 - Python 3.6 lacks strict
            seconds.append(answered - (submitted if alone else edge))
            edge = answered
            latencies += [seconds[-1]] if size == batch else []
        events.emit(
            "window",
            index=index,
            start=start,
            iterations=len(window_sizes),
            samples=sum(window_sizes),
            seconds=edge - start,
            step_seconds=seconds,
            input_seconds=None,
            units=predictor.units and predictor.units * sum(window_sizes),
        )
    drain(answers)
    events.net("stop")
    events.usage("stop")
    with events.timed("latency"):
        found = (latencies, None) if alone else isolated_latencies(predictor, samples[:batch])
    events.emit(
        "latency", in_flight=predictor.in_flight, batch=batch, with_transfer=found[0], without_transfer=found[1]
    )
    return len(sizes), sum(sizes)


def in_batches(samples, batch):
    """Sizes of the batches that hold `samples` samples; the last may be smaller."""
    return [batch] * (samples // batch) + [samples % batch] * (samples % batch > 0)


def seconds_per_batch(predictor, batches):
    """Seconds per batch of the busy predictor, measured over `RATE_SECONDS`."""
    end = time.monotonic() + RATE_SECONDS
    results = list(pipelined(predictor, takewhile(lambda _: time.monotonic() < end, batches)))
    (_, began, first), (_, _, stop) = results[0], results[-1]
    return (stop - first) / (len(results) - 1) if len(results) > 1 else stop - began


def isolated_latencies(predictor, batch):
    """Seconds of each repeat of a batch that has the device to itself: with transfer, and without, in turns."""
    placed = predictor.place(batch)
    return timed(lambda: predictor.collect(predictor.submit(batch)), lambda: predictor.run(placed))


def timed(*calls: object):
    """Seconds of each call in turns, a list for each."""
    seconds, began = [[] for _ in calls], time.monotonic()
    while len(seconds[0]) < MAX_REPEATS and time.monotonic() - began < MAX_LATENCY_SECONDS * len(calls):
        for call, own in zip(calls, seconds):  # noqa: B905 - Python 3.6 lacks strict
            start = time.monotonic()
            call()
            own.append(time.monotonic() - start)
    return seconds


def predict_all(predictor, library):
    """Predicted class of each sample of the library, in order."""
    parts = (library.samples[first : first + CHUNK] for first in range(0, len(library), CHUNK))
    return [int(one) for classes, *_ in pipelined(predictor, parts) for one in classes]


def emit_accuracy(events, predictions, reference, labels, args):
    labels = list(map(int, labels))
    events.emit(
        "accuracy",
        precision=args.precision,
        samples=len(labels),
        correct=matches(predictions, labels),
        reference="fp32",
        reference_correct=matches(reference, labels),
        agree=matches(predictions, reference),
        fit_iterations=args.fit,
    )


def matches(some, others):
    return sum(one == other for one, other in zip(some, others))  # noqa: B905 - Python 3.6 lacks strict


def fitting(predictor, library, asked):
    """``(batch, reason)``: the largest batch up to `asked` that fits into memory, and why it is smaller, or None."""
    if predictor.overcommits:
        return fitting_on_host(predictor, library, asked)
    free = predictor.free_bytes()
    if fits(predictor, library, asked):
        return asked, None
    used, too_many = 0, asked
    while too_many - used > max(1, used // RESOLUTION):
        middle = (used + too_many) // 2
        if fits(predictor, library, middle):
            used = middle
        else:
            too_many = middle
    if not used:
        refuse("the device lacks memory for a batch of 1; ask for a smaller network or smaller images")
    held = "" if free is None else f", which had {gib(free)} free"
    return used, f"{asked} samples do not fit into the memory of the device{held}"


def fits(predictor, library, count):
    """Whether the device has memory for the batches in flight."""
    try:
        drain(pipelined(predictor, [library.batch(count)] * predictor.in_flight))
    except OutOfMemoryError:
        return False
    return True


def fitting_on_host(predictor, library, asked):
    """`fitting` on a host, which kills a process that allocates too much: extrapolates linearly from the peaks of smaller batches.

    If the kernel reports no peak of this process, the requested batch is assumed to fit.
    """
    small, large = TRIAL_BATCHES
    if asked <= large:
        return asked, None
    predictor.predict(library.batch(small))  # the first call's one-off allocations must not count
    peaks = []
    for count in TRIAL_BATCHES:
        host_memory()  # resets the peak
        predictor.predict(library.batch(count))
        peaks.append(host_memory()[0]["peak_bytes"])
    if None in peaks:
        print("the kernel reports no peak memory of this process: the batch may not fit", file=sys.stderr)
        return asked, None
    # A batch longer than the library is a copy; shorter ones, such as those of the trials, are slices.
    sample = library.samples[0].nbytes if asked > len(library) else 0
    each = max((peaks[1] - peaks[0]) / (large - small), 1) + sample
    free = free_bytes()
    if each * asked <= MEMORY_SHARE * free:
        return asked, None
    used = max(1, int(MEMORY_SHARE * free / each))
    return used, f"{asked} samples take {gib(each * asked)}, the host has {gib(free)} free"


def gib(size):
    return f"{size / 2**30:.1f} GiB"
