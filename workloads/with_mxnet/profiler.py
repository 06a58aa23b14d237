"""MXNet 1.9.1's side of a profiling pass (`profiling.py`): operators, and the memory of each device.

MXNet's profiler records operators, not kernels: on a GPU its engine waits for each operator, so that an operator's time is that of its
kernels and their launch. It records single operators only if the engine does not run them in bulk. MXNet reads `UNBULKED` at import, so
the program sets it in a `kernels` pass only. The engine then starts each operator separately, which costs time between
operators but none within them; the unprofiled steps before the profiler run without bulks too, and show this cost.

Times are microseconds of CLOCK_REALTIME (src/profiler/profiler.h, `ProfileStat::NowInMicrosec`), shifted by the offset
between that clock and CLOCK_MONOTONIC, read when the profiler starts.
"""

import json
import re
import tempfile
from pathlib import Path

import profiling
from profiling import Clock

# Operators of a graph run in segments of up to 15, and the imperative ones in between as `ImperativeBulk`; with this setting, none do.
UNBULKED = {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "0"}
CUDA = "libcudart.so.11.0"
HOST_MEMORY = "/proc/self/status"
# A counter in the dump. Each thread's counters are written together, so that the dump is not in order of time.
MEMORY_COUNTER = re.compile(r'"ts": (\d+),\s+"args": \{ "Memory: (cpu|gpu)/(\d+)": (\d+)')


class Regions(profiling.Regions):
    """Regions of a step, watched only if the loop waits for the device at their edges.

    MXNet's engine runs operators long after the step has enqueued them, and interleaves those of an update with those of the backward
    pass: without waiting, a region would be the time of its enqueueing, during which other operators run.
    """

    def watch(self, watcher, *, only):
        if watcher.settles:
            super().watch(watcher, only=only)


def profiler(training, kind):
    return profiling.tracer(
        kind,
        kernels=lambda: Operators(training.mx, training.gpus()),
        memory=training.storage or Clock(HOST_MEMORY),
        cuda=CUDA if training.args.device == "gpu" else None,
    )


def memory(training):
    """Memory of every device for `profiling.py`.

    On a GPU, allocated is what MXNet's storage has handed out, and reserved what all processes use of the device: MXNet keeps
    freed memory in a pool that it does not report.
    """
    if training.storage is None:
        return profiling.host_memory()
    found = []
    held = training.storage.held()
    for mxnet_number, number in training.gpus().items():
        allocated, peak = held.get(mxnet_number, (0, 0))
        free, total = training.mx.context.gpu_memory_info(mxnet_number)
        sizes = {"allocated_bytes": allocated, "reserved_bytes": total - free, "peak_bytes": peak}
        found.append({"device": f"gpu{number}", **sizes})
    return found


def new_file():
    return str(Path(tempfile.mkdtemp(prefix="dlscale-mxnet-")) / "profile.json")


class Operators:
    """Records every operator that the engine runs between start and stop; `gpus` maps MXNet's GPU numbers to those in the job."""

    source = "mxnet.profiler"
    whole = False

    def __init__(self, mx, gpus):
        self.mx, self.gpus, self.file, self.offset = mx, gpus, new_file(), None
        # Not `profile_all`, which adds each call of MXNet's C API.
        mx.profiler.set_config(filename=self.file, profile_symbolic=True, profile_imperative=True, profile_api=False)

    def start(self):
        if self.offset is None:
            self.offset = profiling.realtime_offset_ns() / 1e9
        self.mx.profiler.set_state("run")

    def stop(self):
        self.mx.profiler.set_state("stop")

    def columns(self):
        self.mx.profiler.dump(finished=True)  # once: MXNet cannot profile again after it
        trace = json.loads(Path(self.file).read_text(encoding="utf-8"))["traceEvents"]
        return columns(trace, gpus=self.gpus, offset=self.offset)


def columns(trace, *, gpus, offset):
    """Turn Chrome trace events into columns of table `kernels`; `offset`: seconds from the monotonic clock to theirs.

    Devices are the trace's processes, named `gpu/0`. Of MXNet's two records per operator, only its device's is
    used (begin and end in sequence, phases B and E); the other (b and e) is for MXNet's own sums.
    """
    names = {event["pid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    threads, open_operators, rows = {}, {}, []
    for event in trace:
        thread = event.get("pid"), event.get("tid")
        if event["ph"] == "B":
            open_operators[thread] = event
        elif event["ph"] == "E" and thread in open_operators:
            kind, _, number = names.get(event["pid"], "cpu/").partition("/")
            start = open_operators.pop(thread)["ts"]
            rows.append(
                (
                    event["name"],
                    gpus[int(number)] if kind == "gpu" else -1,
                    threads.setdefault(thread, len(threads)),
                    round(start / 1e6 - offset, 6),
                    round((event["ts"] - start) / 1e6, 6),
                )
            )
    names, devices, streams, starts, durations = (list(column) for column in zip(*rows)) if rows else ([],) * 5  # noqa: B905
    return {
        "kind": ["op"] * len(rows),
        "name": names,
        "device": devices,
        "stream": streams,
        "start": starts,
        "duration": durations,
        "op": list(range(len(rows))),
    }


class Storage(Clock):
    """Bytes that MXNet's storage has handed out on each device, counted by its profiler from construction on; create it before the model.

    `kind` is that of the devices, `gpu` or `cpu`.
    """

    def __init__(self, mx, kind="gpu"):
        super().__init__("mxnet.profiler")
        self.mx, self.kind, self.file, self.read, self.allocated = mx, kind, new_file(), 0, {}
        others = {"profile_symbolic": False, "profile_imperative": False, "profile_api": False}
        mx.profiler.set_config(filename=self.file, profile_memory=True, **others)
        mx.profiler.set_state("run")

    def held(self):
        """Bytes held now, and their peak since the last call, by device number."""
        self.mx.profiler.dump(finished=False)  # appends to the file
        with open(self.file, encoding="utf-8") as file:  # noqa: PTH123 - continues where the last call stopped
            file.seek(self.read)
            added = file.read()
            self.read = file.tell()
        peaks = dict(self.allocated)
        for _, kind, device, size in sorted(
            (int(moment), kind, int(number), int(text)) for moment, kind, number, text in MEMORY_COUNTER.findall(added)
        ):
            if kind == self.kind:
                self.allocated[device] = size
                peaks[device] = max(peaks.get(device, 0), size)
        return {device: (size, peaks[device]) for device, size in self.allocated.items()}
