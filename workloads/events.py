"""The contract between any training program and the runner: one JSON object a line on stdout.

Each line starts with ``::dlscale:: `` and carries the event's name, the rank and the monotonic time in seconds
(CLOCK_MONOTONIC, one clock for all processes of a host). Standard library only, so that it works in any image.

    from events import Events
    events = Events(rank=0)
    events.emit("run_start", world_size=2, ...)

event         fields beside event, rank, t
run_start     world_size, batch_per_device, global_batch, iterations, warmup, image_shape, num_classes, parameters, seed
env           python, framework, framework_version, device, device_names, threads, cpus, cuda, cudnn, nccl (null where absent)
phase         name (import, create, ...), seconds
first_step    (none) emitted once the first iteration's result is on the device
warmup_end    iterations
window        index, start, iterations, samples, seconds; step_seconds (a list, or null where the framework can't time a step)
loss          first_iteration, values (one a step, this rank's own batch)
data          decoded, skipped (names of the images that would not decode)
net           interfaces: {name: {rx_bytes, tx_bytes}}; where: "start" or "stop" of the measured window
run_stop      iterations, samples, parameter_norm (equal on all ranks that train one model)
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

PREFIX = "::dlscale:: "


class Events:
    """Writes events of one rank; each call is one whole line, flushed."""

    def __init__(self, rank, stream=None):
        """Speak for `rank` on `stream` (standard output unless told)."""
        self.rank = rank
        self.stream = stream or sys.stdout

    def emit(self, event, **fields):
        """Write one event; fields must be JSON values."""
        record = {"event": event, "rank": self.rank, "t": time.monotonic(), **fields}
        self.stream.write(PREFIX + json.dumps(record, separators=(",", ":")) + "\n")
        self.stream.flush()

    def phase(self, name, start):
        """Emit the phase `name` that began at monotonic time `start` and ends now."""
        self.emit("phase", name=name, seconds=time.monotonic() - start)

    def net(self, where):
        """Emit the byte counters of every network interface that this process sees."""
        self.emit("net", where=where, interfaces=interface_bytes())


def interface_bytes(path="/proc/net/dev"):
    """Read ``{interface: {rx_bytes, tx_bytes}}`` from the kernel's table (proc(5))."""
    interfaces = {}
    for line in Path(path).read_text(encoding="ascii").splitlines()[2:]:
        name, _, counters = line.partition(":")
        fields = counters.split()
        interfaces[name.strip()] = {"rx_bytes": int(fields[0]), "tx_bytes": int(fields[8])}
    return interfaces


def process_start():
    """Monotonic time in seconds at which this process was started by the kernel (proc(5), field 22)."""
    stat = Path("/proc/self/stat").read_text(encoding="ascii")
    ticks = int(stat.rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())
