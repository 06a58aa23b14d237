"""A short profiling pass in place of the measured loop, and the regions of a step. Standard library and syntax of Python 3.6 only.

The program passes in the object that `loop.py` describes. ``with self.regions("forward"):`` divides its `step` into input, forward,
backward and optimizer; in a measured run each costs two no-op calls. `update` may enclose the last two. `profile` also needs:

    regions                a `Regions`
    profiler(kind)         the tracer: `source` (its name), `start()` and `stop()` around everything profiled (on GPUs also
                           cudaProfilerStart and cudaProfilerStop, so that nsys, ncu or nvprof see just that part), `whole` (whether it
                           can start only once), and `columns()`, called once at the end: columns of table `kernels`
                           (`events.py`) as lists by name, or None if it has none
    memory()               [{"device", "allocated_bytes", "reserved_bytes", "peak_bytes"}]; resets the peak
    flop_counts()          [{"source", "phase", "flop_per_sample", "operators"}]; [] if the framework can't count
    ranks.slowest(seconds) the maximum over all processes, the same on each, so that they take the same decisions; None if
                           they cannot exchange it

A `calls` pass uses a `Recorder` as its tracer. `recorder` creates it before the framework's first call of the CUDA API, so that its rows cover
the whole process up to the end of the pass.

With a region, only that part of each step is profiled: the profiler starts and stops at its edges, where devices are synchronized.
A profiler that can start only once runs throughout; rows that begin outside the region are dropped.
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

PLAIN_STEPS = 5  # steps right before the profiler starts, synchronized like the profiled ones: they show its overhead
MAX_WINDOWS = 10
STEADY_TOLERANCE = 0.05  # largest difference of two windows, as a share of the slower one
SAMPLED_SECONDS = 3.0  # 30 samples of a sampler at 10 Hz
MAX_SAMPLED_STEPS = 1000  # their seconds go into one line


class NoRegion:
    def __enter__(self):
        """Do nothing."""

    def __exit__(self, kind, value, trace):
        """Do nothing."""


NO_REGION = NoRegion()
UPDATE = "update"  # backward and optimizer as one: recorded only if requested as the region; otherwise its parts are


def realtime_offset_ns():
    """Nanoseconds from the monotonic clock to CLOCK_REALTIME: of five readings, the one that took least time.

    Between two clock readings a process can be preempted for milliseconds, which would shift all times of a profiler.
    """

    def reading():
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        return after - before, real - (before + after) // 2

    return min(reading() for _ in range(5))[1]


class Regions:
    """Regions of a step: ``with regions("forward"): ...``. Without a watcher, entering one is a no-op.

    `annotate` may be set to a function from a region's name to a context manager that shows the region to the framework or a tool.
    """

    def __init__(self):
        self.watcher, self.only, self.annotate, self.spans = None, None, None, []

    def __call__(self, name):
        if self.watcher is None or self.only not in {None, name} or (name == UPDATE and self.only is None):
            return NO_REGION
        return Region(self, name)

    def watch(self, watcher, *, only):
        """Record regions, or only the region `only`, as (name, start, end) in seconds of the monotonic clock; see `Watcher`."""
        self.watcher, self.only, self.spans = watcher, only, []

    def close(self):
        """Stop watching. Returns the recorded spans."""
        self.watcher = None
        return self.spans


class Region:
    """One passage through a watched region."""

    def __init__(self, regions, name):
        self.regions, self.name = regions, name

    def __enter__(self):
        self.regions.watcher.enter()
        self.range = self.regions.annotate(self.name) if self.regions.annotate else NO_REGION
        self.range.__enter__()
        self.start = time.monotonic()

    def __exit__(self, *error: object):
        self.regions.watcher.settle()
        self.regions.spans.append((self.name, self.start, time.monotonic()))
        self.range.__exit__(*error)
        self.regions.watcher.leave(self.name)


class Watcher:
    """Actions at the edges of regions in a pass of `kind`: `enter` before the start, `settle` before the end, `leave` after it."""

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
            self.training.memory()  # resets the peak, which is this region's from here on
        if self.toggles:
            self.profiler.start()

    def leave(self, name):
        if self.toggles:
            self.profiler.stop()
        if self.memory:
            self.memory.note(name)


class Clock:
    """A tracer that records nothing itself; `source` names where the figures come from, by default the clock that times steps and regions."""

    whole = False

    def __init__(self, source="clock"):
        self.source = source

    def start(self):
        """Do nothing."""

    def stop(self):
        """Do nothing."""

    def columns(self):
        """Return no table."""


class Bracket:
    """cudaProfilerStart and cudaProfilerStop around another profiler, so that nsys, ncu or nvprof see only what is profiled.

    `library` is the name of the CUDA runtime that the framework has loaded, such as ``libcudart.so.12``: the loader returns that copy.
    Without an external tool both calls do nothing, and their return codes mean nothing (CUDA Runtime API, Profiler Control).
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
    """The recorder of all CUDA calls of the process, for a `calls` pass, else None; `cuda` is the version of the framework's CUDA."""
    if args.profile != "calls":
        return None
    if args.device == "cpu":
        refuse("--profile=calls records calls of the CUDA API, and --device=cpu makes none; leave it out")
    return Recorder(f"libcupti.so.{cuda.partition('.')[0]}")


def tracer(kind, *, kernels, memory, cuda, calls=None):
    """The tracer for a pass of `kind`: `kernels()`, `memory` or `calls`; else a `Clock`, as other tools read the metrics.

    cuda: name of the CUDA runtime of a program on GPUs, None on CPUs.
    """
    if kind == "kernels":
        inner = kernels()
    elif kind in {"memory", "calls"}:
        inner = memory if kind == "memory" else calls
    else:
        inner = Clock() if kind == "region" or cuda is None else Clock("cuda profiler api")
    return inner if cuda is None else Bracket(cuda, inner)


class Memory:
    """Memory of each device after each phase, and its peak within the phase: the maximum over all steps."""

    def __init__(self, training):
        self.training, self.found = training, {}

    def note(self, phase):
        for fields in self.training.memory():
            before = self.found.get((phase, fields["device"]), fields)
            self.found[phase, fields["device"]] = {key: maximum(before[key], fields[key]) for key in fields}

    def emit(self, events):
        for (phase, _), fields in self.found.items():
            events.emit("memory", phase=phase, **fields)


class Steps:
    """Runs steps and emits the losses of all of them in order."""

    def __init__(self, training, events):
        self.training, self.events, self.done = training, events, 0

    def note(self, losses):
        values = self.training.read(losses)
        self.events.loss(self.done, values)
        self.done += len(values)

    def run(self, count):
        """Run steps without synchronizing between them; return the seconds of one."""
        start = time.monotonic()
        losses = [self.training.step() for _ in range(count)]
        self.training.synchronize()
        seconds = (time.monotonic() - start) / count
        self.note(losses)
        return seconds

    def run_synchronized(self, count):
        """Run steps, synchronizing after each: (start, end) of each, and their losses, not emitted yet."""
        spans, losses = [], []
        for _ in range(count):
            start = time.monotonic()
            losses.append(self.training.step())
            self.training.synchronize()
            spans.append((start, time.monotonic()))
        return spans, losses


def profile(training, events, *, kind, after, iterations, region, window):
    """Warm up, and run `iterations` steps under the profiler of `kind`: kernels, metrics, memory, region or calls. Returns the steps run in all.

    Emits first_step, loss, profile_start and profile_stop; then, depending on the kind, regions, memory and rows of table `kernels`; then
    flop_count and eval. `after`: steps before the profiled ones, at least the first and `PLAIN_STEPS` more. None: until the rate is steady, that is,
    until the last two windows of `window` steps differ by 5 % at most, or ten windows have run. A metrics pass is extended to three seconds,
    or a thousand steps if those are shorter, unless DLSCALE_COUNTERS is ncu, which replays every kernel on its own.
    """
    steps = Steps(training, events)
    memory = Memory(training) if kind == "memory" else None
    if memory:
        memory.note("model")
    steps.run(1)
    events.emit("first_step")
    steady = warm_up(steps, after=after, window=window)
    spans, losses = steps.run_synchronized(PLAIN_STEPS)
    steps.note(losses)
    plain = [] if kind == "calls" else durations(spans)  # a recorder has been on since the start of the process
    if kind == "metrics" and os.environ.get("DLSCALE_COUNTERS") != "ncu":
        iterations = max(iterations, sampled_steps(training, statistics.median(plain)))
    # Not earlier: creating a profiler may slow down everything that follows.
    profiler = training.profiler(kind)
    training.barrier()
    started = {"kind": kind, "source": profiler.source, "iteration": steps.done, "region": region}
    events.emit("profile_start", **started, steady=steady, plain_step_seconds=plain)
    watcher = Watcher(training, profiler, memory, kind=kind, region=region)
    spans, found = run_profiled(steps, watcher, iterations=iterations, region=region)

    if kind == "region":
        for name in sorted({name for name, _, _ in found}):
            events.emit("regions", name=name, seconds=seconds_by_step(found, name, spans))
    if memory:
        memory.emit(events)
    columns = profiler.columns()
    if columns is not None:
        if region is not None:
            columns = rows_in_spans(columns, [(start, end) for _, start, end in found])
        events.table("kernels", columns if kind == "calls" else rows_in_steps(with_regions(columns, found), spans))
    for fields in training.flop_counts():
        events.emit("flop_count", **fields)
    training.barrier()
    events.evaluation(steps.done, training.evaluate())
    return steps.done


def run_profiled(steps, watcher, *, iterations, region):
    """Run the profiled steps: (start, end) of each, and (name, start, end) of the regions in them."""
    training, profiler = steps.training, watcher.profiler
    training.regions.watch(watcher, only=region)
    if not watcher.toggles:
        profiler.start()
    training.barrier()  # ranks take unequal time to start a profiler
    spans, losses = steps.run_synchronized(iterations)
    if not watcher.toggles:
        profiler.stop()
    found = training.regions.close()
    steps.events.emit("profile_stop", iterations=iterations, step_seconds=durations(spans))
    steps.note(losses)
    return spans, found


def warm_up(steps, *, after, window):
    """Run the steps before the plain ones. Returns whether the last two whole windows agree."""
    if after is not None:
        left = max(after - PLAIN_STEPS - steps.done, 0)
        seconds = [steps.run(window) for _ in range(left // window)]
        if left % window:
            steps.run(left % window)
        return agree(seconds)
    seconds = []
    for _ in range(MAX_WINDOWS):
        own_seconds = steps.run(window)
        slowest = steps.training.ranks.slowest(own_seconds)
        seconds.append(own_seconds if slowest is None else slowest)
        # Processes that can't agree must not each stop at a window of their own choice: the others would wait for them.
        if slowest is not None and agree(seconds):
            break
    return agree(seconds)


def agree(seconds):
    """Whether the last two differ by at most `STEADY_TOLERANCE`; a single one does not agree."""
    return len(seconds) > 1 and max(seconds[-2:]) - min(seconds[-2:]) <= STEADY_TOLERANCE * max(seconds[-2:])


def sampled_steps(training, seconds):
    """How many steps of `seconds` to run for a sampler, the same number on all ranks; 0 if they can't agree on one."""
    slowest = training.ranks.slowest(seconds)
    return min(math.ceil(SAMPLED_SECONDS / slowest), MAX_SAMPLED_STEPS) if slowest else 0


def durations(spans):
    return [round(end - start, 7) for start, end in spans]


def maximum(one, other):
    """The maximum of two numbers, or of two equal names; None if either is unknown."""
    return None if one is None or other is None else max(one, other)


def step_of(moment, spans):
    """Index of the step, in ordered (start, end), that contains a moment; None if no step does."""
    number = bisect.bisect_right([start for start, _ in spans], moment) - 1
    return number if number >= 0 and moment <= spans[number][1] else None


def seconds_by_step(found, name, spans):
    """Seconds in the region `name` in each step; a step may pass through it more than once."""
    seconds = [0.0] * len(spans)
    for other, start, end in found:
        if other == name:
            seconds[step_of(start, spans)] += end - start
    return seconds


def with_regions(columns, found):
    """Add the recorded regions to a profiler's rows."""
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


def rows_in_spans(columns, spans):
    """Keep the rows that begin in one of these ordered spans; for work of a GPU, its call decides."""
    rows = range(len(columns["start"]))
    kinds, starts = columns["kind"], columns["start"]
    numbers = columns.get("correlation") or [None for _ in rows]
    calls = {numbers[row]: starts[row] for row in rows if kinds[row] == "call"}
    host = {"call", "op", "region"}
    began = [starts[row] if kinds[row] in host else calls.get(numbers[row], starts[row]) for row in rows]
    kept = [row for row in rows if step_of(began[row], spans) is not None]
    return {name: [values[row] for row in kept] for name, values in columns.items()}


def rows_in_steps(columns, spans):
    """Keep the rows that begin in a step, without profiler start and stop and the barriers."""
    kept = [index for index, moment in enumerate(columns["start"]) if step_of(moment, spans) is not None]
    return {name: [values[index] for index in kept] for name, values in columns.items()}


def host_memory(root="/proc/self"):
    """Resident set of this process, and its peak since the last call (proc(5): VmRSS, VmHWM, clear_refs), as `memory()` returns it."""
    sizes = dict(line.split(":", 1) for line in (Path(root) / "status").read_text().splitlines())
    resident, peak = (1024 * int(sizes[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    try:
        (Path(root) / "clear_refs").write_text("5")
    except OSError:  # not permitted: the peak covers the whole run so far, not a phase
        peak = None
    return [{"device": "host", "allocated_bytes": resident, "reserved_bytes": None, "peak_bytes": peak}]
