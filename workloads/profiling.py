"""A short pass under a profiler, in place of the measured loop, and the parts of a step. Standard library and syntax of Python 3.6 only.

The program hands over the object that `loop.py` describes. Its `step` is divided by ``with self.regions("forward"):`` into input, forward,
backward and optimizer, which costs a measured run two calls that do nothing; `update` may enclose the last two. For `profile` it has besides:

    regions                a `Regions`
    profiler(kind)         what traces: `source` (its name), `start()` and `stop()` around all that is profiled (where there are GPUs also
                           cudaProfilerStart and cudaProfilerStop, so that nsys, ncu or nvprof see just that), `whole` (whether it can
                           start only once), and `columns()`, once at the end: lists by the name of a column of table `kernels`
                           (`events.py`), or None where there is nothing to tell
    memory()               [{"device", "allocated_bytes", "reserved_bytes", "peak_bytes"}]; the peak begins anew
    flop_counts()          [{"source", "phase", "flop_per_sample", "operators"}]; [] where the framework can't count
    ranks.slowest(seconds) the most of what all processes hand in, the same number on each, so that they go on together; None where they
                           have no way to tell each other

A pass of calls has a `recorder` in place of a tracer, which `recorder` made before the framework's first call of the CUDA API: its rows are of the
whole process, from there to the end of the pass.

With a region, only that part of each step is under the profiler, which starts and stops at its edges; there devices are synchronized.
One that can start only once runs through, and what was begun outside of the region is left out of its rows.
"""

import bisect
import ctypes
import math
import os
import statistics
import time
from pathlib import Path

from arguments import refuse
from cupti import Recorder

PLAIN = 5  # steps right before the profiler, synchronized like those under it: they show what it costs
MOST_WINDOWS = 10
STEADY = 0.05  # of the slower one: by how much two windows may differ
SAMPLED_S = 3.0  # a sampler that looks ten times a second then has thirty looks
MOST_SAMPLED = 1000  # steps; their seconds go into one line


class Nothing:
    def __enter__(self):
        """Do nothing."""

    def __exit__(self, kind, value, trace):
        """Do nothing."""


NOTHING = Nothing()
UPDATE = (
    "update"  # backward and optimizer as one: noted where only that is asked for, since its parts are noted otherwise
)


def realtime_offset_ns():
    """Nanoseconds from the monotonic clock to CLOCK_REALTIME: of five looks the one during which the least time passed.

    Between two looks at clocks a process may be kept waiting for milliseconds, which would move all that a profiler timed.
    """

    def look():
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        return after - before, real - (before + after) // 2

    return min(look() for _ in range(5))[1]


class Regions:
    """Parts of a step: ``with regions("forward"): ...``. Until somebody watches, nothing is done and nothing is kept.

    `annotate` may be set to what makes, of a name, a context by which the framework or a tool that looks at it knows the region.
    """

    def __init__(self):
        self.watcher, self.only, self.annotate, self.spans = None, None, None, []

    def __call__(self, name):
        if self.watcher is None or self.only not in {None, name} or (name == UPDATE and self.only is None):
            return NOTHING
        return Region(self, name)

    def watch(self, watcher, *, only):
        """Note regions, or the one called `only`, as (name, start, end) in seconds of the monotonic clock; see `Watcher`."""
        self.watcher, self.only, self.spans = watcher, only, []

    def close(self):
        """Stop watching: what was noted."""
        self.watcher = None
        return self.spans


class Region:
    """One passage through a region that is watched."""

    def __init__(self, regions, name):
        self.regions, self.name = regions, name

    def __enter__(self):
        self.regions.watcher.enter()
        self.range = self.regions.annotate(self.name) if self.regions.annotate else NOTHING
        self.range.__enter__()
        self.start = time.monotonic()

    def __exit__(self, *error: object):
        self.regions.watcher.settle()
        self.regions.spans.append((self.name, self.start, time.monotonic()))
        self.range.__exit__(*error)
        self.regions.watcher.leave(self.name)


class Watcher:
    """What is done at the edges of regions in a pass of `kind`: `enter` before a start, `settle` before an end, `leave` after it."""

    def __init__(self, training, profiler, memory, *, kind, region):
        self.training, self.profiler, self.memory = training, profiler, memory
        self.toggles = region is not None and not profiler.whole
        self.settles = region is not None or kind in {"memory", "region"}

    def settle(self):
        if self.settles:
            self.training.synchronize()

    def enter(self):
        self.settle()
        if self.memory:
            self.training.memory()  # from here on its peak is this region's
        if self.toggles:
            self.profiler.start()

    def leave(self, name):
        if self.toggles:
            self.profiler.stop()
        if self.memory:
            self.memory.note(name)


class Clock:
    """What looks at nothing but what the loop itself reads, at `source`: by default the clock that times steps and regions anyway."""

    whole = False

    def __init__(self, source="clock"):
        self.source = source

    def start(self):
        """Begin nothing."""

    def stop(self):
        """End nothing."""

    def columns(self):
        """Tell nothing."""


class Bracket:
    """cudaProfilerStart and cudaProfilerStop around another profiler, so that nsys, ncu or nvprof see just what is profiled.

    `library` is the name of the CUDA runtime that the framework has loaded, such as ``libcudart.so.12``: the loader then gives that one.
    Without a tool outside both calls do nothing, and what they return is of no use (CUDA Runtime API, Profiler Control).
    """

    def __init__(self, library, inner):
        self.cuda, self.inner = ctypes.CDLL(library), inner
        self.source, self.whole, self.columns = inner.source, inner.whole, inner.columns

    def start(self):
        self.inner.start()
        self.cuda.cudaProfilerStart()

    def stop(self):
        self.cuda.cudaProfilerStop()
        self.inner.stop()


def recorder(args, cuda):
    """What records the calls of the whole process, where the command line asks for them; `cuda` is the version of the framework's CUDA."""
    if args.profile != "calls":
        return None
    if args.device == "cpu":
        refuse("--profile=calls records calls of the CUDA API, and --device=cpu makes none; leave it out")
    return Recorder(f"libcupti.so.{cuda.partition('.')[0]}")


def tracer(kind, *, kernels, memory, cuda, calls=None):
    """What `profile` has traced in a pass of a kind: what `kernels` makes, `memory`, `calls`, or what is outside of this process on GPUs.

    cuda: the name of the CUDA runtime of a program on GPUs, None on CPUs.
    """
    if kind == "kernels":
        inner = kernels()
    elif kind in {"memory", "calls"}:
        inner = memory if kind == "memory" else calls
    else:
        inner = Clock() if kind == "region" or cuda is None else Clock("cuda profiler api")
    return inner if cuda is None else Bracket(cuda, inner)


class Memory:
    """What devices held after each phase, and at most within it: the highest of all steps."""

    def __init__(self, training):
        self.training, self.found = training, {}

    def note(self, phase):
        for fields in self.training.memory():
            before = self.found.get((phase, fields["device"]), fields)
            self.found[phase, fields["device"]] = {key: highest(before[key], fields[key]) for key in fields}

    def emit(self, events):
        for (phase, _), fields in self.found.items():
            events.emit("memory", phase=phase, **fields)


class Steps:
    """Runs steps, and emits the losses of all of them in the order in which they were."""

    def __init__(self, training, events):
        self.training, self.events, self.done = training, events, 0

    def note(self, losses):
        values = self.training.read(losses)
        self.events.loss(self.done, values)
        self.done += len(values)

    def together(self, count):
        """Run steps between which nothing waits for the device: the seconds of one."""
        start = time.monotonic()
        losses = [self.training.step() for _ in range(count)]
        self.training.synchronize()
        seconds = (time.monotonic() - start) / count
        self.note(losses)
        return seconds

    def each(self, count):
        """Run steps with the device synchronized after each: (start, end) of each, and losses that are not noted yet."""
        spans, losses = [], []
        for _ in range(count):
            start = time.monotonic()
            losses.append(self.training.step())
            self.training.synchronize()
            spans.append((start, time.monotonic()))
        return spans, losses


def profile(training, events, *, kind, after, iterations, region, window):
    """Warm up, and run `iterations` steps under the profiler of `kind`: kernels, metrics, memory, region or calls. Gives the steps of the pass.

    Emits first_step, loss, profile_start and profile_stop; then, as the kind has them, regions, memory and rows of table `kernels`;
    flop_count and eval. `after` is how many steps go before, at least the first and `PLAIN` more; None is until the rate is steady, that
    is, until two windows of `window` steps differ by 5 % at most, or ten have passed. A pass of metrics goes on for three seconds or a
    thousand steps, unless DLSCALE_COUNTERS says ncu, which replays every kernel by itself.
    """
    steps = Steps(training, events)
    memory = Memory(training) if kind == "memory" else None
    if memory:
        memory.note("model")
    steps.together(1)
    events.emit("first_step")
    steady = warm_up(steps, after=after, window=window)
    spans, losses = steps.each(PLAIN)
    steps.note(losses)
    plain = [] if kind == "calls" else durations(spans)  # a recorder was there all the time
    if kind == "metrics" and os.environ.get("DLSCALE_COUNTERS") != "ncu":
        iterations = max(iterations, sampled(training, statistics.median(plain)))
    # Not before: a profiler that was made may slow down all that follows.
    profiler = training.profiler(kind)
    training.barrier()
    started = {"kind": kind, "source": profiler.source, "iteration": steps.done, "region": region}
    events.emit("profile_start", **started, steady=steady, plain_step_seconds=plain)
    watcher = Watcher(training, profiler, memory, kind=kind, region=region)
    spans, found = watched(steps, watcher, iterations=iterations, region=region)

    if kind == "region":
        for name in sorted({name for name, _, _ in found}):
            events.emit("regions", name=name, seconds=by_step(found, name, spans))
    if memory:
        memory.emit(events)
    columns = profiler.columns()
    if columns is not None:
        if region is not None:
            columns = begun_in(columns, [(start, end) for _, start, end in found])
        events.table("kernels", columns if kind == "calls" else within(with_regions(columns, found), spans))
    for fields in training.flop_counts():
        events.emit("flop_count", **fields)
    training.barrier()
    events.evaluation(steps.done, training.evaluate())
    return steps.done


def watched(steps, watcher, *, iterations, region):
    """Run the steps that the profiler looks at: (start, end) of each, and (name, start, end) of the regions in them."""
    training, profiler = steps.training, watcher.profiler
    training.regions.watch(watcher, only=region)
    if not watcher.toggles:
        profiler.start()
    training.barrier()  # starting takes one rank longer than another
    spans, losses = steps.each(iterations)
    if not watcher.toggles:
        profiler.stop()
    found = training.regions.close()
    steps.events.emit("profile_stop", iterations=iterations, step_seconds=durations(spans))
    steps.note(losses)
    return spans, found


def warm_up(steps, *, after, window):
    """Run the steps that go before the plain ones: whether the last two whole windows agreed."""
    if after is not None:
        left = max(after - PLAIN - steps.done, 0)
        seconds = [steps.together(window) for _ in range(left // window)]
        if left % window:
            steps.together(left % window)
        return agree(seconds)
    seconds = []
    for _ in range(MOST_WINDOWS):
        mine = steps.together(window)
        slowest = steps.training.ranks.slowest(mine)
        seconds.append(mine if slowest is None else slowest)
        # Processes that can't tell each other must not stop at a window of their own choice: the others would wait for them.
        if slowest is not None and agree(seconds):
            break
    return agree(seconds)


def agree(seconds):
    """Whether the last two differ by little; one alone agrees with nothing."""
    return len(seconds) > 1 and max(seconds[-2:]) - min(seconds[-2:]) <= STEADY * max(seconds[-2:])


def sampled(training, seconds):
    """Steps of `seconds` that a sampler can see, the same number on all ranks; 0 where they can't agree on one."""
    slowest = training.ranks.slowest(seconds)
    return min(math.ceil(SAMPLED_S / slowest), MOST_SAMPLED) if slowest else 0


def durations(spans):
    return [round(end - start, 7) for start, end in spans]


def highest(one, other):
    """The higher of two numbers, or of two names that are equal; what is not known once is not known."""
    return None if one is None or other is None else max(one, other)


def step_of(moment, spans):
    """Which of the steps, (start, end) in order, a moment lies in; None where in none of them."""
    number = bisect.bisect_right([start for start, _ in spans], moment) - 1
    return number if number >= 0 and moment <= spans[number][1] else None


def by_step(found, name, spans):
    """Seconds in the region `name` in each step; a step can pass through it more than once."""
    seconds = [0.0] * len(spans)
    for other, start, end in found:
        if other == name:
            seconds[step_of(start, spans)] += end - start
    return seconds


def with_regions(columns, found):
    """Add the regions that were noted to the rows of a profiler."""
    rows, size = len(found), len(columns["start"])
    regions = {
        "kind": ["region"] * rows,
        "name": [name for name, _, _ in found],
        "device": [-1] * rows,
        "start": [round(start, 9) for _, start, _ in found],
        "duration": [round(end - start, 9) for _, start, end in found],
    }
    names = list(dict.fromkeys([*regions, *columns]))
    return {name: columns.get(name, [None] * size) + regions.get(name, [None] * rows) for name in names}


def begun_in(columns, spans):
    """Keep the rows that begin in one of these spans, in order; of what a GPU did, those whose call did."""
    rows = range(len(columns["start"]))
    kinds, starts = columns["kind"], columns["start"]
    numbers = columns.get("correlation") or [None for _ in rows]
    calls = {numbers[row]: starts[row] for row in rows if kinds[row] == "call"}
    host = {"call", "op", "region"}
    began = [starts[row] if kinds[row] in host else calls.get(numbers[row], starts[row]) for row in rows]
    kept = [row for row in rows if step_of(began[row], spans) is not None]
    return {name: [values[row] for row in kept] for name, values in columns.items()}


def within(columns, spans):
    """Keep the rows that begin in a step: starting and stopping a profiler, and meeting at a barrier, are none."""
    kept = [index for index, moment in enumerate(columns["start"]) if step_of(moment, spans) is not None]
    return {name: [values[index] for index in kept] for name, values in columns.items()}


def host_memory(root="/proc/self"):
    """Resident set of this process, and its peak since the last call (proc(5): VmRSS, VmHWM, clear_refs), as `memory()` gives it."""
    sizes = dict(line.split(":", 1) for line in (Path(root) / "status").read_text().splitlines())
    resident, peak = (1024 * int(sizes[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    try:
        (Path(root) / "clear_refs").write_text("5")
    except OSError:  # forbidden here: the peak is that of the whole run so far, and of no phase
        peak = None
    return [{"device": "host", "allocated_bytes": resident, "reserved_bytes": None, "peak_bytes": peak}]
