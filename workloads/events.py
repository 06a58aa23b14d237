"""The contract between any training program and the runner: one JSON object a line on stdout.

Each line starts with ``::dlscale:: `` and carries the event's name, the rank and the monotonic time in seconds
(CLOCK_MONOTONIC, one clock for all processes of a host). Standard library and syntax of Python 3.6 only, so that it works in any image.

    from events import Events
    events = Events(rank=0)
    events.emit("run_start", world_size=2, ...)

event         fields in addition to event, rank, t
run_start     world_size, batch_per_device, global_batch, iterations, warmup, image_shape, num_classes (null if samples are not images, or
              nothing is classified), parameters, seed;
              gradient_bytes (that each device hands to the exchange per step, or null); flop_per_sample ({forward, backward} or
              null: twice the multiply-adds of convolutions and dense layers: `flop.py`; per unit if windows carry units)
env           python, framework, framework_version, device, device_names, threads, cpus, cuda, cudnn, nccl (null if absent)
phase         name (import, model, probe_wires, probe_collectives, probe_peak, probe_compute, ...), seconds
bandwidth     operation ("all_reduce", "push_pull", "all_gather", "reduce_scatter", "all_to_all"), size_bytes, elements, dtype, seconds
              (a list, one per timed exchange), time_us (their median), algbw_gb_s, busbw_gb_s, wrong (elements of the result with
              a wrong value); by rank 0 only, before the first step: `probe.py`, `collectives.py`
no_collectives  operations (a list, of the last three above), reason (ends a sentence that starts with their names); by rank 0 only: `collectives.py`
peak          precision, cores (that this rank may run on), flop_per_s (of the fastest product of square matrices on them, all ranks
              concurrently), library (that multiplied them, and its precision); on CPUs, before the first step: `probe.py`
compute       seconds (a list, one per forward and backward pass whose gradients are dropped): `probe.py`
backward      forward_s, backward_s, gradients ([bytes, seconds since the start of the backward pass] of at most 60 groups, in order) of one
              pass on one device, by programs that can measure it: `with_pytorch/backward.py`
first_step    (none) emitted once the first iteration's result is on the device
compiled      fresh, kept: graphs that the network's compiler built, and graphs reused from an earlier run; by programs that compile
techniques    effects: {technique: count of what it changed, 0 if nothing}; like `compiled`, after the first step or, in inference, the last window
pace          iterations, window: how many will be measured, and how many per window; only with --iterations=0
warmup_end    iterations
window        index, start, iterations, samples, seconds (device time if the device records it; the event then comes a window later);
              step_seconds (a list, or null if the framework can't time a step); input_seconds (part of `seconds` spent waiting for the
              next batch, or null); units (how many, such as seconds of audio; null or absent if throughput counts samples)
steps         window (index of the one that follows), seconds (the next of its steps; the window's own step_seconds is null then)
loss          first_iteration, values (one per step, of this rank's own batch; null if not finite)
eval          iteration, losses (one per device of this process, in training mode, on a batch that all ranks share: equal on all ranks
              that train one model)
epoch         epoch (from 1), iterations, seconds (of its training), train_loss (mean of this rank's losses in it, null if not finite),
              validation: {samples, loss_sum, correct} of this rank's share; after the last window of the epoch: `loop.py`
data          decoded (images that this rank trained on), skipped (names of the images that would not decode)
input_alone   batches, samples, seconds: real data prepared without training, after the measurement; excludes batches already prefetched
net           where: "start" or "stop" of the measured windows; interfaces: {name: {rx_bytes, tx_bytes}};
              ports: {adapter:port: {rx_bytes, tx_bytes, link_layer}} of InfiniBand and RoCE; nvlink: {GPU's UUID: {rx_bytes, tx_bytes}};
              node (the runner's name of this host, null if there is only one), namespace (number of the network namespace);
              at the stop peers: [{local, remote, port, connections}] of this process, local_connections (those that never leave the host)
usage         where: "start" or "stop" of the measured windows; cpu_s, memory_bytes, memory_peak_bytes of this process' control group, null
              if it has none of its own
nccl          lines (of NCCL's own log, those that name its transports)
run_stop      iterations, samples, parameter_norm (equal on all ranks that train one model), state_bytes if ranks may hold shards: this
              rank's bytes of weights and optimizer state

A profiling pass (`profiling.py`) has no warmup_end, window or net; it has

profile_start kind ("kernels", "metrics", "memory", "region" or "calls"), source ("torch.profiler", "mxnet.profiler", "tf.profiler", "clock", ...),
              iteration (steps before it), region ("forward", "backward", "optimizer", "update", "input", or null for whole steps),
              steady (whether the rate was), plain_step_seconds (a list: the last steps before it, each synchronized)
profile_stop  iterations (under the profiler), step_seconds (a list, each synchronized)
regions       name (of a region, or "step": everything but the input, if a framework runs it as one), seconds (a list, one per profiled step;
              devices are synchronized at its edges)
memory        phase ("model", "forward", "backward", "optimizer", ...), device ("gpu0", "host"), allocated_bytes, reserved_bytes,
              peak_bytes (null if the framework can't tell)
flop_count    source ("torch.utils.flop_counter", ...), phase ("forward" or "backward"), flop_per_sample, operators ({name: FLOP a sample})

An inference program (`inference.py`) has no loss, eval or epoch; its iterations are batches. Its step_seconds are latencies if one batch
is in flight at a time, else the time between consecutive answers. It has

batch         asked, used (images per batch, as requested and as they fit), reason (one sentence, or null if they are equal)
accuracy      precision, samples, correct, reference ("fp32"), reference_correct, agree (predictions equal to the fp32 network's),
              fit_iterations (of training before); with real images only
latency       in_flight (batches concurrently in flight in the windows), batch; of batches that have the device to themselves
              with_transfer (a list of seconds, from samples on the host to predictions there) and without_transfer (from samples on the device
              until it is done, null if there is no transfer or it can't be told apart)
generation    batch, prompt_tokens, new_tokens, first_token_s (from the prompts on the host to the first token of each on the device), step_s
              (a list: from one token of each to the next); of a batch of prompts that has the device to itself. Steps that do not fit the
              line follow in further events, with first_token_s null
cache         difference (of a score computed with the cached keys and values from that of the whole sequence at once, relative to
              the largest score)

The sampler of a node (`monitor.py`), which is not a rank and uses rank 0, writes

monitor_start node, hz, gpus: [{index, uuid, name, power_limit_w, default_power_limit_w, counters, power_reading}], cores, sources ({source:
              null, or the reason why it is missing}: "nvml", "gpm", "dcgm", "psutil", "rapl"); `counters` is "gpm", "dcgm" or null,
              `power_reading` "instant" or "usage" (the mean over the previous second on Ampere and later, except GA100; instantaneous there)
trouble       device ("gpu0", "host"), fields (columns that begin to be missing), reason; once per column and reason, and per stalled call
monitor_stop  samples, seconds, cpu_s (its own)

Tables accompany the events, many rows per line: ``::dlscale-rows:: {"table": ..., "rank": ..., "columns": {name: [...]}}``, written by
`Events.rows`. Times in them are seconds of the same monotonic clock. Columns that are null throughout may be omitted.

telemetry     by `monitor.py`, one row per device and sample: t, device ("gpu0", ..., "host");
              of GPUs utilisation_percent, memory_utilisation_percent, memory_mib, power_w, energy_j (a counter), temperature_c, sm_clock_mhz,
              memory_clock_mhz, slowdown_bits (nvmlDeviceGetCurrentClocksEventReasons), pcie_rx_bytes, pcie_tx_bytes, nvlink_rx_bytes,
              nvlink_tx_bytes (counters), ecc_corrected, ecc_uncorrected (counters), processes (a list of {pid, memory_mib, cgroup, session});
              of GPM or DCGM, over the time since the previous row: sm_active_percent, sm_occupancy_percent, fp64_percent, fp32_percent,
              fp16_percent, tensor_percent, dram_percent, pcie_rx_rate, pcie_tx_rate, nvlink_rx_rate, nvlink_tx_rate (bytes a second);
              of the host core_percent (a list, one per CPU, since the previous row), memory_mib, disk_read_bytes, disk_write_bytes, net_rx_bytes,
              net_tx_bytes (counters), clock_mhz, energy_j (a counter: the packages' RAPL)
kernels       by a profiler, one row per piece of work (the runner adds its category): kind ("kernel", "copy", "set", "call" of the CUDA API,
              "op" of the framework, "region"), name, device (a GPU's index in the job, -1 for the CPU), stream or thread (numbers), start,
              duration, grid, block ("x,y,z"), bytes (of copies and sets), correlation (the same for a call and the work it launched), op
              (number: a kernel's or a call's op, an op's own), parent (an op's op), flop, fp32_percent, tensor_percent, dram_bytes (null if unknown)

The counters of `net` are the host's, not the rank's: all ranks with the same `node` and `namespace` read the same interfaces, all with
the same `node` the same ports; GPUs are distinct by UUID. A sum over nodes counts each of these once. All ranks meet right before
both readings, so that no rank's traffic is missing. `peers` are the rank's own.
"""

import contextlib
import json
import math
import os
import socket
import sys
import time
from itertools import zip_longest
from pathlib import Path

import control_group
import counters

PREFIX = "::dlscale:: "
# Ranks share a pipe, whose writes are atomic up to PIPE_BUF bytes (pipe(7)): another rank's line can end up within a longer line.
# (mpirun splits lines of any length, and tags the pieces, so that the runner can reassemble them.)
LINE_BYTES = 4096
NUMBERS_PER_LINE = 150  # numbers in a list on one line
NAME_LENGTH = 1500  # names of templated kernels can be longer than a line
ROWS_PREFIX = "::dlscale-rows:: "
CLOCK_BOOTTIME = 7  # time.CLOCK_BOOTTIME, which Python 3.6 lacks
# Lines with NCCL's version, its network, interfaces and adapters, the transport of each channel, and what prevented a better one.
NCCL_WORDS = (
    *(" via ", "NCCL version", "Using network", "NET/IB :", "NET/Socket :"),
    *("NVLS comm", "NVLS tree", "NVLS multicast", "NCCL WARN", "set by environment", "libibverbs", "P2P is disabled"),
)


class Events:
    """Writes events of one rank; every line is written whole and flushed."""

    def __init__(self, rank, stream=None):
        """Write for `rank` to `stream` (default: standard output)."""
        self.rank = rank
        self.stream = stream or sys.stdout
        self.excluded = slice(0, 0)  # bytes of NCCL's log that `nccl` ignores

    def emit(self, event, **fields: object):
        self._write(PREFIX, {"event": event, "rank": self.rank, "t": time.monotonic(), **fields})

    def rows(self, table, columns):
        """Write rows of a table: lists of equal length by column name."""
        self._write(ROWS_PREFIX, {"table": table, "rank": self.rank, "columns": columns})

    def table(self, name, columns):
        """Write rows in lines short enough to arrive whole; a line omits columns that are null throughout it.

        Text is truncated to `NAME_LENGTH` characters; non-ASCII characters become question marks.
        """
        names = list(columns)
        frame = len(json.dumps([*names, name])) + 96
        lines, size = [[]], frame
        for values in zip_longest(*columns.values()):
            row = [ascii_text(value) if isinstance(value, str) else value for value in values]
            length = len(json.dumps(row)) + len(names)
            if lines[-1] and size + length > LINE_BYTES:
                lines.append([])
                size = frame
            lines[-1].append(row)
            size += length
        for rows in filter(None, lines):
            found = {column: [row[index] for row in rows] for index, column in enumerate(names)}
            self.rows(name, {column: values for column, values in found.items() if any(v is not None for v in values)})

    def _write(self, prefix, record):
        self.stream.write(prefix + json.dumps(record, separators=(",", ":")) + "\n")
        self.stream.flush()

    @contextlib.contextmanager
    def timed(self, name):
        """Emit the enclosed block as a phase."""
        start = time.monotonic()
        yield
        self.phase(name, start)

    def phase(self, name, start):
        self.emit("phase", name=name, seconds=time.monotonic() - start)

    def run_start(self, args, *, world_size, **network: object):
        """Emit the requested configuration; samples are images if the program has --image-size, and classified if it has --num-classes."""
        size = getattr(args, "image_size", None)
        self.emit(
            "run_start",
            world_size=world_size,
            batch_per_device=args.batch,
            global_batch=args.batch * world_size,
            iterations=args.iterations,
            warmup=args.warmup,
            image_shape=size and [3, size, size],
            num_classes=getattr(args, "num_classes", None),
            seed=args.seed,
            **network,
        )

    def loss(self, first_iteration, values):
        """Emit the losses of consecutive iterations; one that is not finite becomes null, as JSON has no NaN."""
        for first in range(0, len(values), NUMBERS_PER_LINE):
            chunk = [finite(value) for value in values[first : first + NUMBERS_PER_LINE]]
            self.emit("loss", first_iteration=first_iteration + first, values=chunk)

    def window(self, step_seconds, **fields: object):
        """Emit a window; if its step times do not fit a line, `steps` events with them precede it."""
        seconds_list = step_seconds and [round(seconds, 7) for seconds in step_seconds]
        if seconds_list and len(seconds_list) > NUMBERS_PER_LINE:
            for first in range(0, len(seconds_list), NUMBERS_PER_LINE):
                self.emit("steps", window=fields["index"], seconds=seconds_list[first : first + NUMBERS_PER_LINE])
            seconds_list = None
        self.emit("window", step_seconds=seconds_list, **fields)

    def evaluation(self, iteration, losses):
        """Emit the losses on the shared batch after `iteration` iterations, one per device of this process."""
        self.emit("eval", iteration=iteration, losses=[finite(loss) for loss in losses])

    def nccl(self):
        """Emit the lines of NCCL's log (NCCL_DEBUG_FILE of this process) about transports, if any."""
        lines = nccl_lines(excluded=self.excluded)
        if lines:
            self.emit("nccl", lines=lines)

    @contextlib.contextmanager
    def without_nccl_log(self):
        """Exclude what NCCL logs in this block from `nccl`: it is about connections that the training does not use."""
        log = nccl_log()
        begin = log.stat().st_size if log else 0
        yield
        self.excluded = slice(begin, log.stat().st_size if log else 0)

    def usage(self, where):
        self.emit("usage", where=where, **control_group.usage())

    def net(self, where):
        """Emit the host's wire counters, and at the `stop` of the measured windows the peers of this process."""
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
    """The number, or None if JSON can't write it."""
    return value if math.isfinite(value) else None


def ascii_text(text):
    return text[:NAME_LENGTH].encode("ascii", "replace").decode("ascii")


def nccl_log(pattern=None):
    """Path of NCCL's log of this process; None if it writes none.

    The file's name is NCCL_DEBUG_FILE with %h for the host's name and %p for the process id (NCCL user guide).
    """
    pattern = pattern or os.environ.get("NCCL_DEBUG_FILE", "")
    path = Path(pattern.replace("%h", socket.gethostname()).replace("%p", str(os.getpid())))
    return path if pattern and path.is_file() else None


def nccl_lines(pattern=None, *, excluded=slice(0, 0)):
    """The lines of this process' NCCL log about version, network and channels, without duplicates and without the `excluded` bytes."""
    log = nccl_log(pattern)
    text = bytearray(log.read_bytes() if log else b"")
    del text[excluded]
    lines = text.decode("utf-8", errors="replace").splitlines()
    return list(dict.fromkeys(line for line in lines if any(word in line for word in NCCL_WORDS)))


def process_start():
    """Monotonic time in seconds at which the kernel started this process (proc(5), field 22)."""
    stat = Path("/proc/self/stat").read_text(encoding="ascii")
    ticks = int(stat.rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(CLOCK_BOOTTIME) - time.monotonic())
