"""What Caffe reports about itself in a short pass: time by layer, and memory. Standard library and syntax of Python 3.6 only.

Caffe has no profiler. `kernels` uses `caffe time`, which runs the forward and backward pass of the same net, without an update, and
reports each layer's time only as **the mean over all iterations**. The table's rows are derived from these means: an iteration's rows follow
one another in Caffe's order of layers, from the iteration's own start, each lasting its layer's mean scaled by the iteration's length
relative to the mean iteration. Sums, counts, means and shares over the pass are Caffe's; the start of a single row is not measured.

`memory` uses `caffe train`: the resident set of its process after the net is built, and during training. Caffe does not report a
GPU's memory; the run's samples do.
"""

import argparse
import re
import sys
import time

from arguments import refuse
from process_caffe import ITERATION, READY, lines
from profiling import PLAIN_STEPS, agree, host_memory

KINDS = ("kernels", "memory")
STAMP = re.compile(rb"^[IWEF]\d{4,8} (\d\d):(\d\d):(\d\d\.\d+) ")
FORWARD = b"Performing Forward"  # the net is built
INITIAL = re.compile(rb"\] Initial loss: (\S+)")
TIMED = re.compile(rb"\] (Testing for \d+ iterations|Iteration: \d+ forward-backward time)")
LAYER = re.compile(rb"\] +(\S+)\tforward: (\S+) ms|\] +(\S+)\tbackward: (\S+) ms")
DAY_S = 86400


def check(args):
    if args.profile not in {None, *KINDS}:
        refuse(f"--profile={args.profile} is not offered with Caffe; ask for {' or '.join(KINDS)}")
    if args.profile_region:
        refuse(
            f"--profile-region={args.profile_region}: Caffe's passes can't be narrowed to a part of a step; leave it out"
        )
    if args.profile == "memory" and args.device == "gpu":
        refuse("--profile=memory: Caffe does not report its GPU memory; the run's own samples have memory_mib")
    if args.profile and args.devices > 1:
        refuse(f"--profile={args.profile} --devices={args.devices}: `caffe time` runs on one device; ask for one")


def trained(args):
    """The `caffe train` run of a pass: it logs every iteration."""
    before = args.profile_after or args.warmup
    return argparse.Namespace(**{**vars(args), "warmup": before, "window": 1, "iterations": args.profile_iterations})


class Stamps:
    """Converts glog's time stamps, the local time of day, to the monotonic clock; valid for half a day from now."""

    def __init__(self):
        now, self.monotonic = time.time(), time.monotonic()
        local = time.localtime(now)
        self.of_day = 3600 * local.tm_hour + 60 * local.tm_min + local.tm_sec + now % 1

    def moment(self, line):
        hours, minutes, seconds = (float(part) for part in STAMP.match(line).groups())
        later = (3600 * hours + 60 * minutes + seconds - self.of_day) % DAY_S
        return self.monotonic + (later if later < DAY_S / 2 else later - DAY_S)


def time_layers(process, args, events, *, kinds):
    """Read `caffe time`: emit first_step, loss, profile_start and profile_stop, and a row per layer, direction and iteration.

    `kinds` maps layers' names to their types. Returns (exit code, iterations).
    """
    launched, stamps = time.monotonic(), Stamps()
    edges, forward, backward = [], [], []
    for line in lines(process):
        initial, layer = INITIAL.search(line), LAYER.search(line)
        if FORWARD in line:
            events.phase("model", launched)
        elif initial:
            events.loss(0, [float(initial.group(1))])
        elif TIMED.search(line):
            if not edges:
                events.emit("first_step")
                fields = {"kind": "kernels", "source": "caffe time", "iteration": 1, "region": None}
                # Only the first forward and backward pass comes before, and no step runs without the timer.
                events.emit("profile_start", steady=False, plain_step_seconds=[], **fields)
            edges.append(stamps.moment(line))
        elif layer and layer.group(1):
            forward.append((layer.group(1).decode(), float(layer.group(2)) / 1e3))
        elif layer:
            backward.append((layer.group(3).decode(), float(layer.group(4)) / 1e3))
    code = process.wait()
    if code or len(edges) != args.profile_iterations + 1 or not forward or len(forward) != len(backward):
        print("`caffe time` ended before it had told of all layers; its log is above", file=sys.stderr)
        return code or 1, 0
    events.emit("profile_stop", iterations=args.profile_iterations, step_seconds=steps(edges))
    events.table("kernels", columns(edges, forward, backward, kinds=kinds))
    return 0, 1 + args.profile_iterations


def columns(edges, forward, backward, *, kinds):
    """Columns of the table `kernels`, from the boundaries of iterations and the layers' (name, mean seconds)."""
    mean = (edges[-1] - edges[0]) / (len(edges) - 1)
    order = [(f"{kind_of(name, kinds)} forward", seconds) for name, seconds in forward]
    order += [(f"{kind_of(name, kinds)} backward", seconds) for name, seconds in reversed(backward)]
    starts, durations = [], []
    for began, length in zip(edges, steps(edges)):  # noqa: B905 - Python 3.6
        laid = 0.0
        for _, seconds in order:
            starts.append(began + laid)
            durations.append(seconds * length / mean)
            laid += durations[-1]
    rows = len(starts)
    return {
        "kind": ["op"] * rows,
        "name": [name for name, _ in order] * (len(edges) - 1),
        "device": [-1] * rows,
        "stream": [0] * rows,
        "start": starts,
        "duration": durations,
        "op": list(range(rows)),
    }


def kind_of(name, kinds):
    """Type of a layer; Caffe itself adds Split layers where a blob is read twice."""
    return kinds.get(name, "Split" if name.endswith("_split") else name)


def watch_memory(process, args, events):
    """Read `caffe train`: emit first_step, loss, profile_start, profile_stop and memory. Returns (exit code, iterations)."""
    launched, stamps, first = time.monotonic(), Stamps(), args.profile_after or args.warmup
    last, ends, losses = first + args.profile_iterations, [], []
    for line in lines(process):
        if READY in line:
            events.phase("model", launched)
            emit_memory(process, events, "model")
        found = ITERATION.search(line)
        if not found or int(found.group(1)) > last:
            continue
        iteration = int(found.group(1))
        ends.append(stamps.moment(line))
        losses.append(float(found.group(2)))
        if iteration == 0:
            events.emit("first_step")
        if iteration == first:
            fields = {"kind": "memory", "source": "/proc/[pid]/status", "iteration": first, "region": None}
            fields["steady"] = settled(steps(ends), args.window)
            events.emit("profile_start", plain_step_seconds=steps(ends[-1 - PLAIN_STEPS :]), **fields)
        if iteration == last:
            events.emit("profile_stop", iterations=last - first, step_seconds=steps(ends[first:]))
            emit_memory(process, events, "step")
            events.loss(0, losses)
    code = process.wait()
    return (0, last) if len(ends) == last + 1 and not code else (code or 1, 0)


def steps(edges):
    return [after - before for before, after in zip(edges, edges[1:])]  # noqa: B905, RUF007 - Python 3.6


def settled(seconds, window):
    """Whether the last two windows of `window` steps took equally long."""
    return agree([sum(seconds[-2 * window : -window]), sum(seconds[-window:])]) if len(seconds) >= 2 * window else False


def emit_memory(process, events, phase):
    for sizes in host_memory(f"/proc/{process.pid}"):
        events.emit("memory", phase=phase, **sizes)
