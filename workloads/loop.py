"""The measured loop, the same for every training program. Standard library only.

The program passes in an object with these methods and attributes:

    step()          enqueue one whole iteration (input, forward, backward, update) and return its loss, still on the device
    synchronize()   wait until the device has finished everything enqueued
    barrier()       wait for all ranks
    read(losses)    losses of synchronized steps as numbers
    start()         wait for the device and start the clock; returns time.monotonic() at the first edge
    window(n)       enqueue n steps, without waiting if the device records timestamps of its own; returns a function that waits
                    until they are done and returns (time.monotonic() at their end, losses as numbers, seconds of each step or None if unknown)
    lag             windows that may be enqueued before that function is called: 0 if `window` itself waits
    ranks.slowest(seconds)  the maximum over all ranks, None if they cannot exchange it
    evaluate()      training-mode losses on the batch that all ranks share, one per device of this process, as numbers; random
                    number generators are reseeded
    batches         the `Batches` that `step` takes its input from
    exchange(n), alone(), product(n, precision)  for `probe.py`, only with a probe
    collectives()   for `collectives.py`, only with a probe
    validate()      {"samples", "loss_sum", "correct"} of this process' share of the validation set, as numbers: sample count, sum (not
                    mean) of the losses, correctly classified samples; only with --epoch-iterations
    compiled()      optional, for a compiled network: {fresh, kept} of the event `compiled`
    effects()       optional, called after the first step: what each technique changed, {name: count}, 0 for a technique without effect

If throughput counts a unit other than samples, the source of the batches has `units`: the units in all batches so far.
If the source prefetches, it has `ahead`: the most batches that it keeps ready; with real data, its input is then also timed alone.

Nothing between the edges of a window waits for the device. If the device records timestamps, the edges do not wait either, so that it
never runs out of work, however short the windows are. Windows are contiguous: each starts where the previous one ended, so that writing
events, which happens after an edge, is part of the measured time and no sample or second is lost.

A convergence run divides its iterations into epochs and validates on the whole validation set after each; warm-up trains before the
first. A window never crosses the end of an epoch. Validation, its events and the barrier after it are in no window: the next window starts
when all ranks have validated. The counters of wires and control groups do include validation. Each validation sample is in exactly one
process' share and none is repeated to fill a batch, so that the sums over all ranks are those of the whole set. The network runs in
inference mode: no dropout, and normalizations use their running statistics, rank 0's on all ranks. Validation changes neither the network
nor the random numbers of the training.
"""

import importlib
import math
import time
from collections import deque

from arguments import refuse
from collectives import collectives
from events import finite
from probe import compute, peak, wires
from profiling import profile

# Fewest seconds, and fewest batches of each loader worker, for which the input is timed alone.
INPUT_SECONDS, INPUT_ROUNDS = 2.0, 2
# With --iterations=0: the shortest window in seconds, the number of windows aimed at, and the fewest. A given --window is shortened if the
# fewest windows would take more than `MAX_OVERRUN` times the requested seconds.
MIN_WINDOW_SECONDS, TARGET_WINDOWS, MIN_WINDOWS, MAX_OVERRUN = 1.2, 15, 5, 4
# The last steps of the warm-up determine the rate: a quarter of them, and at least two if there are enough.
TIMED_DIVISOR, MIN_TIMED = 4, 2


class Training:
    """Base of every framework's `Training`; `framework` is the folder of its modules, `ranks` connects its processes."""

    lag = 0

    def start(self):
        self.synchronize()
        return time.monotonic()

    def barrier(self):
        self.ranks.barrier()

    def profiler(self, kind):
        return importlib.import_module(self.framework + ".profiler").profiler(self, kind)

    def memory(self):
        return importlib.import_module(self.framework + ".profiler").memory(self)

    def flop_counts(self):
        return []  # neither MXNet nor TensorFlow counts operations at run time

    def gradient_bytes(self):
        # Weights and gradients are fp32 at every precision, and sent as such unless requested otherwise.
        half = self.args.compression == "fp16" or "bf16-gradients" in self.args.techniques
        return (2 if half else 4) * self.exchanged()

    def exchanged(self):
        """Gradient elements that a rank exchanges in one iteration."""
        return self.parameter_count()

    def flop_per_sample(self):
        """FLOP of one iteration per sample, as in `flop.per_sample`; None if not counted."""


def norm(arrays):
    """Norm of all NumPy arrays together, summed in fp64."""
    return math.sqrt(math.fsum(float((array.astype("float64") ** 2).sum()) for array in arrays))


class Batches:
    """Iterator over a source's batches that measures how long the loop waits for them."""

    def __init__(self, source):
        self.source = source
        self.seconds, self.units_before = 0.0, 0

    def __next__(self):
        start = time.perf_counter()
        batch = next(self.source)
        self.seconds += time.perf_counter() - start
        return batch

    def waited(self):
        """Seconds spent waiting since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def units(self):
        """Units of the workload in the batches since the last call; None if the unit is the sample."""
        units = getattr(self.source, "units", None)
        if units is None:
            return None
        before, self.units_before = self.units_before, units
        return units - before


def report(training, events, args, *, world_size):
    """Run the requested training and emit its events from run_start to run_stop; `world_size` devices train together.

    In addition to what the module lists, the program's object has

        parameter_count(), gradient_bytes(), flop_per_sample()  fields of run_start
        parameter_norm()    norm of the weights at the end
        state_bytes()       bytes of weights and optimizer state on this rank; only if ranks may hold shards
    """
    events.run_start(
        args,
        world_size=world_size,
        parameters=training.parameter_count(),
        gradient_bytes=training.gradient_bytes(),
        flop_per_sample=training.flop_per_sample(),
    )
    iterations = train(training, events, args)
    samples = args.batch * args.devices  # per iteration of this process
    if args.data != "synthetic":
        source = training.batches.source
        events.emit("data", decoded=source.decoded, skipped=sorted(source.skipped))
        if not args.profile and not args.epoch_iterations:
            input_alone(training, events, samples=samples)
    events.nccl()
    norm = finite(training.parameter_norm())
    state = {"state_bytes": training.state_bytes()} if hasattr(training, "state_bytes") else {}
    events.emit("run_stop", iterations=iterations, samples=iterations * samples, parameter_norm=norm, **state)


def input_alone(training, events, *, samples):
    """Time the input without training, at `samples` samples per batch, and emit input_alone; do nothing if the source has no `ahead`.

    Runs after everything measured, so that it does not change which batches are trained on. Batches already prefetched are not timed. Loader
    workers deliver at about the same time, in bursts, so that whole rounds of a batch each are timed.
    """
    ahead = getattr(training.batches.source, "ahead", None)
    if ahead is None:
        return
    began, each_round = time.monotonic(), max(1, training.args.loader_workers)
    for _ in range(ahead):
        next(training.batches)
    training.barrier()
    start, count = time.monotonic(), 0
    while count < INPUT_ROUNDS * each_round or time.monotonic() - start < INPUT_SECONDS:
        for _ in range(each_round):
            next(training.batches)
        count += each_round
    training.synchronize()
    events.emit("input_alone", batches=count, samples=count * samples, seconds=time.monotonic() - start)
    events.phase("input_alone", began)


def train(training, events, args):
    """Run the measured iterations, or a profiling pass, as requested. Returns the number of iterations."""
    if args.profile:
        options = {"after": args.profile_after, "iterations": args.profile_iterations, "region": args.profile_region}
        return profile(training, events, kind=args.profile, **options, window=args.window)
    lengths = {
        "iterations": args.iterations,
        "warmup": args.warmup,
        "window": args.window,
        "seconds": args.measure_seconds,
    }
    epochs = Epochs(training, events, iterations=args.epoch_iterations) if args.epoch_iterations else None
    return measure(training, events, **lengths, samples=args.batch * args.devices, probe=args.probe, epochs=epochs)


def measure(training, events, *, iterations, warmup, window, samples, seconds=0.0, probe=(), epochs=None):
    """Run `warmup` (at least 1) and then `iterations` iterations; emit their events, from first_step to the last eval.

    `samples`: samples per iteration of this rank. `window`: iterations between two edges. `probe`: message sizes in bytes for which the wires
    are timed before the first step; if any is given, the devices are timed after the last step. `epochs`: the `Epochs` that divide
    the iterations and validate after each epoch, or None. With `iterations` 0, the rate of the warm-up decides how many iterations take
    `seconds`, in windows of about a `TARGET_WINDOWS`th of that unless `window` is given; all ranks use the same numbers and emit pace. Returns
    the number of iterations.
    """
    if probe:
        timings = wires(training, events, sizes=probe)
        collectives(training, events, timings=timings)
        peak(training, events)
    losses = [training.step()]
    training.synchronize()
    events.emit("first_step")
    if hasattr(training, "compiled"):
        events.emit("compiled", **training.compiled())
    effects = training.effects() if hasattr(training, "effects") else {}
    if effects:
        events.emit("techniques", effects=effects)
    timed = 0 if iterations else min(max(MIN_TIMED, warmup // TIMED_DIVISOR), warmup - 1)
    losses += [training.step() for _ in range(warmup - 1 - timed)]
    training.synchronize()
    if not iterations:
        began = time.monotonic()
        losses += [training.step() for _ in range(timed)]
        training.synchronize()
        step_seconds = timed and training.ranks.slowest((time.monotonic() - began) / timed)
        iterations, window = pace(step_seconds, seconds=seconds, window=window)
        events.emit("pace", iterations=iterations, window=window)
    events.loss(0, training.read(losses))
    events.evaluation(warmup, training.evaluate())

    training.barrier()  # no warm-up traffic is on the wires any more
    events.net("start")
    events.usage("start")
    training.batches.waited()
    training.batches.units()
    training.barrier()  # no rank starts while another still reads counters
    events.emit("warmup_end", iterations=warmup)
    windows = Windows(training, events, warmup=warmup, samples=samples, epochs=epochs)
    done = 0
    while done < iterations:
        left = iterations - done if epochs is None else epochs.iterations - done % epochs.iterations
        count = min(window, left)
        windows.run(count)
        done += count
        windows.emit_done(left=0 if count == left else training.lag)
        if epochs is not None and count == left:
            epochs.end()
            windows.start = training.start()
    training.barrier()  # the counters include every rank's last step
    events.net("stop")
    events.usage("stop")
    events.evaluation(warmup + iterations, training.evaluate())
    if probe:
        compute(training, events)
    return iterations


def pace(step_seconds, *, seconds, window):
    """``(iterations, window)`` of whole windows that take at least `seconds` in total, if the slowest rank needs `step_seconds` a step."""
    if not step_seconds:
        refuse("--iterations=0 needs --warmup=2 or more, and ranks that can exchange its rate; give --iterations")
    target = window or max(2, math.ceil(max(MIN_WINDOW_SECONDS, seconds / TARGET_WINDOWS) / step_seconds))
    window = max(1, min(target, int(MAX_OVERRUN * seconds / MIN_WINDOWS / step_seconds)))
    return window * max(MIN_WINDOWS, math.ceil(seconds / (window * step_seconds))), window


class Windows:
    """The measured windows of a training: those enqueued, and those known to be done."""

    def __init__(self, training, events, *, warmup, samples, epochs):
        """Start the clock with an idle device."""
        self.training, self.events, self.warmup, self.samples, self.epochs = training, events, warmup, samples, epochs
        self.done = self.index = 0
        self.pending = deque()
        self.start = training.start()

    def run(self, count):
        batches = self.training.batches
        self.pending.append((count, self.training.window(count), batches.waited(), batches.units()))

    def emit_done(self, *, left):
        """Wait for all pending windows but the last `left`, emit them, and add them to their epoch."""
        while len(self.pending) > left:
            count, finish, waited, units = self.pending.popleft()
            end, values, step_seconds = finish()
            seconds = end - self.start
            self.events.window(
                step_seconds,
                index=self.index,
                start=self.start,
                iterations=count,
                samples=count * self.samples,
                seconds=seconds,
                input_seconds=waited,
                **({} if units is None else {"units": units}),
            )
            self.events.loss(self.warmup + self.done, values)
            if self.epochs is not None:
                self.epochs.add(values, seconds)
            self.start, self.done, self.index = end, self.done + count, self.index + 1


class Epochs:
    """Tracks the current epoch, which has `iterations` iterations, and validates at its end."""

    def __init__(self, training, events, *, iterations):
        self.training, self.events, self.iterations = training, events, iterations
        self.epoch, self.seconds, self.losses = 1, 0.0, []

    def add(self, losses, seconds):
        """Add a window's losses and seconds."""
        self.losses += losses
        self.seconds += seconds

    def end(self):
        """Validate on all ranks, and emit `epoch`: seconds are those of its windows, train_loss is the mean of its losses on this rank."""
        found = self.training.validate()
        self.events.emit(
            "epoch",
            epoch=self.epoch,
            iterations=self.iterations,
            seconds=self.seconds,
            train_loss=finite(sum(self.losses) / self.iterations),
            validation={**found, "loss_sum": finite(found["loss_sum"])},
        )
        self.epoch, self.seconds, self.losses = self.epoch + 1, 0.0, []
        self.training.batches.waited()  # waits during validation belong to no window
        self.training.barrier()
