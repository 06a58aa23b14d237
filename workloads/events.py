"""The contract between any training program and the runner: one JSON object a line on stdout.

Each line starts with ``::dlscale:: `` and carries the event's name, the rank and the monotonic time in seconds
(CLOCK_MONOTONIC, one clock for all processes of a host). Standard library and syntax of Python 3.6 only, so that it works in any image.

    from events import Events
    events = Events(rank=0)
    events.emit("run_start", world_size=2, ...)

event         fields beside event, rank, t
run_start     world_size, batch_per_device, global_batch, iterations, warmup, image_shape, num_classes, parameters, seed;
              gradient_bytes (what a device hands over to be exchanged in one step, or null)
env           python, framework, framework_version, device, device_names, threads, cpus, cuda, cudnn, nccl (null where absent)
phase         name (import, model, probe_wires, probe_compute, ...), seconds
bandwidth     operation ("all_reduce", "push_pull"), size_bytes, elements, dtype, seconds (a list, one for each timed exchange),
              time_us (their median), algbw_gb_s, busbw_gb_s, wrong (elements of the result that are not the sum); by rank 0 alone,
              before the first step: `probe.py`
compute       seconds (a list, one for each forward and backward pass whose gradients are dropped): `probe.py`
first_step    (none) emitted once the first iteration's result is on the device
warmup_end    iterations
window        index, start, iterations, samples, seconds; step_seconds (a list, or null where the framework can't time a step);
              input_seconds (of `seconds`, how long the loop waited for its next batch, or null)
loss          first_iteration, values (one a step, this rank's own batch; null where not finite)
eval          iteration, losses (one a device of this process, in training mode, on a batch that all ranks share: equal on all ranks
              that train one model)
data          decoded (images that this rank trained on), skipped (names of the images that would not decode)
net           where: "start" or "stop" of the measured windows; interfaces: {name: {rx_bytes, tx_bytes}};
              ports: {adapter:port: {rx_bytes, tx_bytes, link_layer}} of InfiniBand and RoCE; nvlink: {GPU's UUID: {rx_bytes, tx_bytes}};
              node (the runner's name of this host, null where there is one), namespace (number of the network namespace);
              at the stop peers: [{local, remote, port, connections}] of this process, local_connections (those that never leave the host)
nccl          lines (of NCCL's own log, those that name its transports)
run_stop      iterations, samples, parameter_norm (equal on all ranks that train one model)

The counters of `net` are the host's, not the rank's: all ranks with the same `node` and `namespace` read the same interfaces, all with
the same `node` the same ports, all GPUs have a UUID of their own. Who adds up over nodes takes each of these once. At both ends all
ranks have met right before, so that no rank's traffic is missing. `peers` are the rank's own.
"""

import json
import math
import os
import socket
import sys
import time
from pathlib import Path

import counters

PREFIX = "::dlscale:: "
CLOCK_BOOTTIME = 7  # time.CLOCK_BOOTTIME, which Python 3.6 does not name
# Version, network, the interfaces and adapters that it was given, what each channel goes over, and what kept it from better ones.
NCCL_WORDS = (
    *(" via ", "NCCL version", "Using network", "NET/IB :", "NET/Socket :"),
    *("NCCL WARN", "set by environment", "libibverbs", "P2P is disabled"),
)


class Events:
    """Writes events of one rank; each call is one whole line, flushed."""

    def __init__(self, rank, stream=None):
        """Speak for `rank` on `stream` (standard output unless told)."""
        self.rank = rank
        self.stream = stream or sys.stdout

    def emit(self, event, **fields: object):
        """Write one event; fields must be JSON values."""
        record = {"event": event, "rank": self.rank, "t": time.monotonic(), **fields}
        self.stream.write(PREFIX + json.dumps(record, separators=(",", ":")) + "\n")
        self.stream.flush()

    def phase(self, name, start):
        """Emit the phase `name` that began at monotonic time `start` and ends now."""
        self.emit("phase", name=name, seconds=time.monotonic() - start)

    def loss(self, first_iteration, values):
        """Emit the losses of consecutive iterations; JSON has no NaN, so that one that is not finite becomes null."""
        self.emit("loss", first_iteration=first_iteration, values=[finite(value) for value in values])

    def evaluation(self, iteration, losses):
        """Emit the losses on the shared batch after `iteration` iterations, one a device of this process."""
        self.emit("eval", iteration=iteration, losses=[finite(loss) for loss in losses])

    def nccl(self):
        """Emit what NCCL's log (NCCL_DEBUG_FILE of this process) says about transports; nothing where there is none."""
        lines = nccl_lines()
        if lines:
            self.emit("nccl", lines=lines)

    def net(self, where):
        """Emit what this host counts on its wires, and at the `stop` of the measured windows with whom this process is connected."""
        talks = {}
        if where == "stop":
            talks["peers"], talks["local_connections"] = counters.peers()
        self.emit(
            "net",
            where=where,
            node=os.environ.get("DLSCALE_NODE"),
            namespace=counters.network_namespace(),
            interfaces=counters.interface_bytes(),
            ports=counters.port_bytes(),
            nvlink=counters.nvlink_bytes(),
            **talks,
        )


def finite(value):
    """Give the number, or None for one that JSON can't write."""
    return value if math.isfinite(value) else None


def nccl_lines(pattern=None):
    """Read the lines of this process' NCCL log that tell version, network and channels, each once.

    The file's name is NCCL_DEBUG_FILE with %h for the host's name and %p for the process id (NCCL user guide).
    """
    pattern = pattern or os.environ.get("NCCL_DEBUG_FILE", "")
    path = Path(pattern.replace("%h", socket.gethostname()).replace("%p", str(os.getpid())))
    if not pattern or not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return list(dict.fromkeys(line for line in lines if any(word in line for word in NCCL_WORDS)))


def process_start():
    """Monotonic time in seconds at which this process was started by the kernel (proc(5), field 22)."""
    stat = Path("/proc/self/stat").read_text(encoding="ascii")
    ticks = int(stat.rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(CLOCK_BOOTTIME) - time.monotonic())
