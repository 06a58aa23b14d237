"""The measured loop, the same for every training program. Standard library only.

The program hands over an object with these methods, and `measure` decides when each is called:

    step()          enqueue one whole iteration (input, forward, backward, update) and return its loss, left on the device
    synchronize()   wait until the device has done all that was enqueued
    barrier()       wait for all ranks
    read(losses)    losses of synchronized steps as numbers
    start()         wait for the device, and start the clock: time.monotonic() at the first edge
    window(n)       enqueue n steps, without waiting for the device where it can note its own time; gives a function that waits until
                    they are done: (time.monotonic() at their end, losses as numbers, seconds of each step or None where unknown)
    lag             windows that may be enqueued before that function is called: 0 where `window` itself waits
    ranks.slowest(seconds)  the most of what all ranks hand in, None where they can't tell each other
    evaluate()      losses in training mode on the batch that all ranks share, one a device of this process, as numbers; whatever
                    draws random numbers is seeded anew
    batches         the `Batches` from which `step` takes its input
    exchange(n), alone(), product(n, precision)  what `probe.py` asks for, with a probe
    collectives()   what `collectives.py` asks for, the same
    validate()      {"samples", "loss_sum", "correct"} of this process' share of the validation set, as numbers: how many samples, the sum of
                    their losses (not their mean), how many were classified right; only with --epoch-iterations
    compiled()      where its network is compiled: {fresh, kept} of the event `compiled`
    effects()       where it can tell after its first step: what each technique changed, {name: count}, 0 where one has no effect

Where throughput counts something else than samples, the source of the batches has `units`: how much of it was in all batches so far.
Where it prepares them ahead of the loop, it has `ahead`: how many may lie ready at most; with real data it is then timed by itself.

Nothing between two edges of a window waits for the device, and where it can note its time the edges do not either: it never runs out
of work, whatever the length of a window. Windows are contiguous: each starts where the one before ended, so that writing events, which
happens after an edge, is part of the measured time and no sample or second is lost.

A training that is watched to converge has its iterations cut into epochs, with the whole validation set after each. Warm-up trains before the
first of them. A window never goes beyond the end of an epoch, where all that comes after it (validation, its events, meeting the other
ranks) is in no window: the next one starts when all ranks have validated. What the wires and the control groups count does hold the
validations. Each validation sample is in exactly one process' share and none is repeated to fill a batch, so that the sums over all ranks are
those of the whole set. The network is as it is used: no dropout, normalizations with the statistics that they gathered, which are rank 0's on
all ranks; nothing of it changes, and the random numbers of the training neither.
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

# For so long the input is timed by itself.
INPUT_SECONDS = 2.0
# Where the length of a run follows its rate: a window takes so many seconds or more, and there are about so many, or at least so few of them.
# Windows of a given length get shorter where the fewest would take several times the seconds that were asked for.
LEAST_WINDOW_SECONDS, WINDOWS, FEWEST_WINDOWS, PATIENCE = 1.2, 15, 5, 4
# Of the warm-up, the last steps tell the rate: a quarter of it, and two where there are so many.
TIMED_SHARE, FEWEST_TIMED = 4, 2


class Training:
    """What the `Training` of every framework has in common; `framework` is the folder of its modules, `ranks` how its processes meet."""

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
        return []  # neither MXNet nor TensorFlow counts anything as it runs

    def gradient_bytes(self):
        # Weights and their gradients are in fp32 at every precision, on the wires unless asked otherwise.
        half = self.args.compression == "fp16" or "bf16-gradients" in self.args.techniques
        return (2 if half else 4) * self.exchanged()

    def exchanged(self):
        """Numbers that a rank hands over in one iteration."""
        return self.parameter_count()

    def flop_per_sample(self):
        """`flop.per_sample` of what an iteration does for one sample; None where nobody has counted it."""


def norm(arrays):
    """The norm of arrays of NumPy's all together, added up in fp64."""
    return math.sqrt(math.fsum(float((array.astype("float64") ** 2).sum()) for array in arrays))


class Batches:
    """Batches of a source, and how long the loop waited for them."""

    def __init__(self, source):
        self.source = source
        self.seconds, self.units_before = 0.0, 0

    def __next__(self):
        start = time.perf_counter()
        batch = next(self.source)
        self.seconds += time.perf_counter() - start
        return batch

    def waited(self):
        """Seconds that were waited since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def units(self):
        """How much of the workload's unit was in the batches since the last call; None where the unit is the sample."""
        units = getattr(self.source, "units", None)
        if units is None:
            return None
        before, self.units_before = self.units_before, units
        return units - before


def report(training, events, args, *, world_size):
    """Do what the command line asks for and tell it from run_start to run_stop; `world_size` devices train together.

    Beyond what `measure` asks for, the program offers

        parameter_count(), gradient_bytes(), flop_per_sample()  what that event has of the network
        parameter_norm()    of the weights at the end
        state_bytes()       what this rank holds of the weights and of what their updates keep; only where ranks may hold parts
    """
    events.run_start(
        args,
        world_size=world_size,
        parameters=training.parameter_count(),
        gradient_bytes=training.gradient_bytes(),
        flop_per_sample=training.flop_per_sample(),
    )
    iterations = train(training, events, args)
    samples = args.batch * args.devices  # of one iteration of this process
    if args.data != "synthetic":
        source = training.batches.source
        events.emit("data", decoded=source.decoded, skipped=sorted(source.skipped))
        if not args.profile and not args.epoch_iterations:
            input_alone(training, events, samples=samples)
    events.nccl()
    norm = finite(training.parameter_norm())
    held = {"state_bytes": training.state_bytes()} if hasattr(training, "state_bytes") else {}
    events.emit("run_stop", iterations=iterations, samples=iterations * samples, parameter_norm=norm, **held)


def input_alone(training, events, *, samples):
    """Time batches that nobody trains on, `samples` in each, and emit input_alone; nothing where the source has no `ahead`.

    Comes after all that is measured, which so trains on what it always did. Batches that were made before are not timed.
    """
    ahead = getattr(training.batches.source, "ahead", None)
    if ahead is None:
        return
    began = time.monotonic()
    for _ in range(ahead):
        next(training.batches)
    training.barrier()
    start, count = time.monotonic(), 0
    while not count or time.monotonic() - start < INPUT_SECONDS:
        next(training.batches)
        count += 1
    training.synchronize()
    events.emit("input_alone", batches=count, samples=count * samples, seconds=time.monotonic() - start)
    events.phase("input_alone", began)


def train(training, events, args):
    """Do what the command line asks for: the measured iterations, or a pass under a profiler. Gives how many there were."""
    if args.profile:
        asked = {"after": args.profile_after, "iterations": args.profile_iterations, "region": args.profile_region}
        return profile(training, events, kind=args.profile, **asked, window=args.window)
    lengths = {
        "iterations": args.iterations,
        "warmup": args.warmup,
        "window": args.window,
        "seconds": args.measure_seconds,
    }
    epochs = Epochs(training, events, iterations=args.epoch_iterations) if args.epoch_iterations else None
    return measure(training, events, **lengths, samples=args.batch * args.devices, probe=args.probe, epochs=epochs)


def measure(training, events, *, iterations, warmup, window, samples, seconds=0.0, probe=(), epochs=None):
    """Run `warmup` (at least 1) and then `iterations` iterations, and emit first_step, warmup_end, net, window, loss and eval.

    `samples` is what one iteration of this rank trains on; `window` the iterations between two edges; `probe` the message sizes in
    bytes for which the wires are timed before the first step, and with any of them the devices after the last one of warm-up; `epochs`
    the `Epochs` that cut the iterations into epochs with a validation after each, if any. With `iterations` 0 there are as
    many as take `seconds` at the rate of the warm-up, in windows of about a `WINDOWS`th of it unless `window` is given; all ranks take
    the same, and emit pace. Gives how many there were.
    """
    if probe:
        took = wires(training, events, sizes=probe)
        collectives(training, events, took=took)
        peak(training, events)
    losses = [training.step()]
    training.synchronize()
    events.emit("first_step")
    if hasattr(training, "compiled"):
        events.emit("compiled", **training.compiled())
    if found := (training.effects() if hasattr(training, "effects") else {}):
        events.emit("techniques", effects=found)
    timed = 0 if iterations else min(max(FEWEST_TIMED, warmup // TIMED_SHARE), warmup - 1)
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
    if probe:
        compute(training, events)
    events.evaluation(warmup, training.evaluate())

    training.barrier()  # nobody's warm-up is on the wires any more
    events.net("start")
    events.usage("start")
    training.batches.waited()
    training.batches.units()
    training.barrier()  # nobody begins while another still reads counters
    events.emit("warmup_end", iterations=warmup)
    windows = Windows(training, events, warmup=warmup, samples=samples)
    done = 0
    while done < iterations:
        count = min(window, iterations - done if epochs is None else epochs.left)
        windows.run(count)
        done += count
        if epochs is None:
            windows.tell(left=training.lag)
        elif epochs.ended(*windows.tell(left=0)):
            windows.start = training.start()
    windows.tell(left=0)
    training.barrier()  # everybody's last step is in the counters
    events.net("stop")
    events.usage("stop")
    events.evaluation(warmup + iterations, training.evaluate())
    return iterations


def pace(step_seconds, *, seconds, window):
    """``(iterations, window)``: whole windows that take `seconds` together, where an iteration of the slowest rank takes `step_seconds`."""
    if not step_seconds:
        refuse(
            "--iterations=0 needs a warm-up of two steps and ranks that can tell each other its rate; give --iterations"
        )
    wanted = window or math.ceil(max(LEAST_WINDOW_SECONDS, seconds / WINDOWS) / step_seconds)
    window = max(1, min(wanted, int(PATIENCE * seconds / FEWEST_WINDOWS / step_seconds)))
    return window * max(FEWEST_WINDOWS, math.ceil(seconds / (window * step_seconds))), window


class Windows:
    """The measured windows of a training, one after the other: what was enqueued, and what is known to be done."""

    def __init__(self, training, events, *, warmup, samples):
        """Start the clock, with a device that has nothing to do."""
        self.training, self.events, self.warmup, self.samples = training, events, warmup, samples
        self.done = self.index = 0
        self.open = deque()
        self.start = training.start()

    def run(self, count):
        batches = self.training.batches
        self.open.append((count, self.training.window(count), batches.waited(), batches.units()))

    def tell(self, *, left):
        """Emit the windows that are done, but for the last `left`: losses and seconds of the last one, waiting for it."""
        values, seconds = [], 0.0
        while len(self.open) > left:
            count, passed, waited, units = self.open.popleft()
            end, values, step_seconds = passed()
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
            self.start, self.done, self.index = end, self.done + count, self.index + 1
        return values, seconds


class Epochs:
    """Where one epoch of so many iterations ends and the next begins."""

    def __init__(self, training, events, *, iterations):
        self.training, self.events, self.iterations = training, events, iterations
        self.epoch, self.seconds, self.losses = 1, 0.0, []

    @property
    def left(self):
        return self.iterations - len(self.losses)

    def ended(self, losses, seconds):
        """Take in a window's losses and seconds; whether the epoch ended with it, in which case all ranks have validated.

        Emits `epoch` then: seconds are those of its windows, train_loss is the mean of its losses on this rank.
        """
        self.losses += losses
        self.seconds += seconds
        if self.left:
            return False
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
        self.training.batches.waited()  # what validation read is in no window
        self.training.barrier()
        return True
