"""The loop of a program that infers, the same for every framework. Standard library and syntax of Python 3.6 only at import.

    infer(predictor, events, args)

loads samples, trains the network for --fit iterations, notes what it predicts in fp32, converts it to --precision, finds a batch that
fits into memory, measures, and holds the predictions against labels and against those in fp32. One process, one device. The program hands
over an object with

    library(most)      (samples, labels): at most `most` distinct samples as a NumPy array on the host, samples first, decoded and cut as
                       `class_folders.central_square` says but not yet normalized (bytes); evenly spread over the validation part of
                       `class_folders.split`. With synthetic data fp32 samples from number 0 on (`synthetic.samples`) and None for labels
    fit(iterations)    train the network in fp32 on the training part: Adam at `FIT_RATE`, batches of `FIT_BATCH`, augmented as ever
    convert()          make of the fp32 network the one that answers in --precision; int8 is calibrated on `CALIBRATION` samples of the
                       training part, or synthetic ones. Until then answers are those of the fp32 network
    overcommits        whether memory that is not there is promised, and the process killed later: true on CPUs, false on GPUs
    free_bytes()       what a GPU has free, or None where the framework can't tell
    in_flight          how many batches it has under way at once: 1 where a batch keeps the device busy by itself
    lay_out(samples)   the same samples where, and as, they are handed over from fastest: slices of it are batches
    submit(samples)    hand a batch over, such a slice or one of the library, of any length from 1 on, and wait for nothing where `in_flight`
                       is more than 1: bring it to the device, normalize it there, bring back the class of the largest score of each
    collect(ticket)    wait for the answer to what `submit` gave: (classes, t), whole numbers on the host, and the time.monotonic() at
                       which they were there. Both raise `OutOfMemoryError` where the device has not enough memory
    place(samples)     bring a slice to the device and wait until it is there; only where `in_flight` is more than 1
    run(placed)        answer what is there and wait until the device is done; likewise

Who derives from `OneByOne` has `predict(samples)`, the classes, in place of all from `in_flight` on. For `report` there are

    parameters, flop_per_sample   of the network as it was built (`flop.per_sample`)
    decoded, skipped              how many images were decoded, and names of those that would not decode
    parameter_norm()              of the fp32 network where the one that it was converted to has no weights to read
    tell(events, samples)         what else there is to measure of a batch of them, laid out, when all windows are over
    units                         how much of what throughput counts a sample has; None where that is the sample

Throughput is of the device kept busy: with several batches under way one is brought to the device while another is computed. A window ends
when its last batch is answered, with later ones under way; those that fill the device before the first window, and keep it filled until
the end of the last, are not counted. Decoding is in no figure, as in MLPerf Inference, whose samples are loaded before.

Latency is of a batch that has the device to itself: with transfer, from its samples in the host's memory to its classes there; without,
from its samples in the device's memory until the device is done. Where `in_flight` is 1 (on CPUs, where one batch keeps all cores busy and
there is no transfer, and in Caffe, which does not tell its own apart), the windows' batches have the device to themselves: the latencies
are theirs, and there are none without transfer.

Batches of real samples go through the library round and round, as far as whole ones fill it; synthetic ones are the same each time.

How many samples are asked for is iterations x batch. Where the batch is more than memory holds, more and smaller batches serve exactly as
many; the last may be smaller. Windows have --window batches of the size that is used. With --iterations=0 both follow from the rate that
warm-up saw (`loop.pace`), those for --measure-seconds.
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

MOST = 10000  # distinct samples that are decoded; at 224 pixels they take 1.5 GB
LEAST_REAL = 1024  # of which so many, if there are, are looked at even where fewer are served: they are what accuracy is counted on
CHUNK = 32  # samples at a time where nothing is measured
FIT_BATCH = 32
FIT_RATE = 3e-4  # of Adam: networks without normalization layers learn with it, those with them need no schedule
CALIBRATION = 128
TRIALS = (8, 32)  # batches from which the memory of a larger one is reckoned
SHARE = 0.8  # of a host's free memory that a batch may take
CLOSE = 50  # a GPU's largest batch is found to within one part in so many
IN_FLIGHT = 4  # batches that a GPU has: one computed, one brought there, and what hides the host's pauses
RATE_SECONDS = 1.0  # for so long the rate is looked at that iterations follow from
REPEATS, LONE_SECONDS = 1000, 2.0  # of lone batches so many are timed, or for so long


class OutOfMemoryError(Exception):
    """The device has not enough memory for a batch."""


def check(args):
    """Refuse what no program that infers can do."""
    if args.devices != 1:
        refuse(f"--devices={args.devices}: inference runs on one device; start one process a device")
    if not args.iterations and args.measure_seconds <= 0:
        refuse("--iterations=0 measures for --measure-seconds; say how many")
    if args.fit and args.data == "synthetic":
        refuse(f"--fit={args.fit} needs real samples to learn from; give a folder of class folders as --data")


def report(make, args, *, environment, imported):
    """Do what the command line asks for and report it by events, from the first to run_stop.

    make() gives the predictor; the framework was `imported` at that time.monotonic(), and `environment` are the fields of env.
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
    """What a program need not say whose device is kept busy by one batch at a time; it has `predict(samples)`, which waits."""

    in_flight = 1
    units = None

    def lay_out(self, samples):
        return samples

    def tell(self, events, samples):
        """Nothing more."""

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
        """The first `count` samples; from the first on again where there are fewer."""
        if count <= len(self):
            return self.samples[:count]
        import numpy as np

        return np.take(self.samples, range(count), axis=0, mode="wrap")

    def whole(self, count):
        """As many samples as make whole batches of `count`; of synthetic ones a single batch."""
        batches = len(self) // count if self.labels is not None else 1
        return self.batch(count * max(1, batches))


class Rounds:
    """Batches of samples that are laid out, one after the other, round and round."""

    def __init__(self, samples):
        self.samples, self.first = samples, 0

    def batches(self, sizes):
        """Batches of these sizes; one that no longer fits into a round begins the next."""
        for size in sizes:
            if self.first + size > len(self.samples):
                self.first = 0
            yield self.samples[self.first : self.first + size]
            self.first += size


def infer(predictor, events, args):
    """Do what the command line asks for: ``(batches, samples)`` that were measured."""
    with events.timed("data"):
        most = args.batch if args.data == "synthetic" else max(LEAST_REAL, args.iterations * args.batch)
        library = Library(*predictor.library(min(MOST, most)))
    if args.fit:
        with events.timed("fit"):
            predictor.fit(args.fit)
    reference = None if library.labels is None else answers(predictor, library)
    with events.timed("convert"):
        predictor.convert()
    with events.timed("batch"):
        used, reason = fitting(predictor, library, args.batch)
    events.emit("batch", asked=args.batch, used=used, reason=reason)
    laid_out = predictor.lay_out(library.whole(used))
    done = serve(predictor, events, laid_out, args, batch=used)
    predictor.tell(events, laid_out[:used])
    if reference is not None:
        hold(events, answers(predictor, library), reference, library.labels, args)
    return done


def fly(predictor, batches):
    """Hand batches over, as many at once as the predictor takes; give (classes, handed, answered) of each in their order.

    The times are of time.monotonic(); a batch is not answered before those that were handed over before it.
    """
    batches, under_way, latest = iter(batches), deque(), 0.0
    while True:
        for batch in islice(batches, predictor.in_flight - len(under_way)):
            under_way.append((time.monotonic(), predictor.submit(batch)))
        if not under_way:
            return
        handed, ticket = under_way.popleft()
        classes, answered = predictor.collect(ticket)
        latest = max(latest, answered)
        yield classes, handed, latest


def last(flight):
    """See batches answered to the last, and give the time of that; None where there were none."""
    seen = deque(flight, maxlen=1)
    return seen[0][2] if seen else None


def serve(predictor, events, samples, args, *, batch):
    """Answer warm-up's batches and then those that are measured, ``(batches, samples)`` of which it gives.

    Emits first_step, pace, warmup_end, net, usage, window and latency. `samples` are whole batches as the predictor has laid them out.
    """
    rounds = Rounds(samples)
    last(fly(predictor, rounds.batches([batch])))
    events.emit("first_step")
    last(fly(predictor, rounds.batches([batch] * (args.warmup - 1))))
    iterations, window = args.iterations, args.window
    if not iterations:
        each = seconds_now(predictor, rounds.batches(repeat(batch)))
        batches, window = pace(each, seconds=args.measure_seconds, window=window)
        iterations = math.ceil(batches * batch / args.batch)
        events.emit("pace", iterations=iterations, window=window)
    sizes = in_batches(iterations * args.batch, batch)
    last(fly(predictor, rounds.batches(sizes[-1:])))  # frameworks choose kernels at the first batch of a length
    alone = predictor.in_flight == 1
    before, after = ([], []) if alone else ([batch] * predictor.in_flight, [batch] * (predictor.in_flight - 1))
    flight = fly(predictor, rounds.batches(before + sizes + after))
    events.net("start")
    events.usage("start")
    edge = time.monotonic() if alone else last(islice(flight, len(before)))
    events.emit("warmup_end", iterations=args.warmup)
    latencies = []
    for index, first in enumerate(range(0, len(sizes), window)):
        own, start, seconds = sizes[first : first + window], edge, []
        for size, (_, handed, answered) in zip(own, flight):  # noqa: B905 - Python 3.6 knows no strict
            seconds.append(answered - (handed if alone else edge))
            edge = answered
            latencies += [seconds[-1]] if size == batch else []
        events.emit(
            "window",
            index=index,
            start=start,
            iterations=len(own),
            samples=sum(own),
            seconds=edge - start,
            step_seconds=seconds,
            input_seconds=None,
            units=predictor.units and predictor.units * sum(own),
        )
    last(flight)
    events.net("stop")
    events.usage("stop")
    with events.timed("latency"):
        found = (latencies, None) if alone else lone(predictor, samples[:batch])
    events.emit(
        "latency", in_flight=predictor.in_flight, batch=batch, with_transfer=found[0], without_transfer=found[1]
    )
    return len(sizes), sum(sizes)


def in_batches(samples, batch):
    """Lengths of the batches that have so many samples; the last may be smaller."""
    return [batch] * (samples // batch) + [samples % batch] * (samples % batch > 0)


def seconds_now(predictor, batches):
    """Seconds that a batch takes of the predictor at work, over `RATE_SECONDS`."""
    end = time.monotonic() + RATE_SECONDS
    seen = list(fly(predictor, takewhile(lambda _: time.monotonic() < end, batches)))
    (_, began, first), (_, _, stop) = seen[0], seen[-1]
    return (stop - first) / (len(seen) - 1) if len(seen) > 1 else stop - began


def lone(predictor, batch):
    """Seconds of a batch that has the device to itself, each time that it was timed: with its transfer, and without."""
    placed = predictor.place(batch)
    return timed(lambda: predictor.collect(predictor.submit(batch))), timed(lambda: predictor.run(placed))


def timed(act):
    seconds, began = [], time.monotonic()
    while len(seconds) < REPEATS and time.monotonic() - began < LONE_SECONDS:
        start = time.monotonic()
        act()
        seconds.append(time.monotonic() - start)
    return seconds


def answers(predictor, library):
    """What the network says of each sample of the library, in order, as whole numbers."""
    parts = (library.samples[first : first + CHUNK] for first in range(0, len(library), CHUNK))
    return [int(one) for classes, *_ in fly(predictor, parts) for one in classes]


def hold(events, found, reference, labels, args):
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
    """Whether the device has memory for as many batches as are under way at once."""
    try:
        last(fly(predictor, [library.batch(count)] * predictor.in_flight))
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
    predictor.predict(library.batch(small))  # what the first one allocates is no batch's
    peaks = []
    for count in TRIALS:
        host_memory()  # the peak begins anew
        predictor.predict(library.batch(count))
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
