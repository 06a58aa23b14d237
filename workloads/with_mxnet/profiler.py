"""What MXNet 1.9.1's own profiler sees of a pass, as `profiling.py` asks for it: operators, and the memory of each device.

MXNet names operators, not kernels: on a GPU its engine waits for each operator, so that one's time is that of its kernels and their
launch. Operators are shown one by one only where the engine does not run them in bulk; MXNet reads `UNBULKED` when it is imported, so
that the program sets it in a pass for `kernels` and never else. The engine then starts each operator by itself, which costs some time
between operators and leaves their own as it is; what it costs shows in the steps before the profiler, which run without bulks too.

Its times are microseconds of CLOCK_REALTIME (src/profiler/profiler.h, `ProfileStat::NowInMicrosec`); they are moved by the distance
between that clock and CLOCK_MONOTONIC, read when the profiler starts.
"""

import json
import re
import tempfile
from pathlib import Path

import profiling
from profiling import Clock

# Operators of a graph run in segments of up to 15, and the imperative ones in between as `ImperativeBulk`; with this, none do.
UNBULKED = {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "0"}
CUDA = "libcudart.so.11.0"
HOST_MEMORY = "/proc/self/status"
# A counter in the dump; each thread's are written together, so that the dump is in no order.
MEMORY_COUNTER = re.compile(r'"ts": (\d+),\s+"args": \{ "Memory: (cpu|gpu)/(\d+)": (\d+)')


class Regions(profiling.Regions):
    """Parts of a step, watched only where the loop waits for the device at their edges.

    MXNet's engine runs operators long after the step has handed them over, and those of an update between those of the backward
    pass: without waiting, a region would be the time in which it was enqueued, and other operators would have run in it.
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
    """What `profiling.py` wants to know of every device.

    Of a GPU, allocated is what MXNet's storage has handed out, and reserved what is in use on the whole device: MXNet keeps what is
    handed back in a pool that it does not tell of.
    """
    if training.storage is None:
        return profiling.host_memory()
    found = []
    held = training.storage.held()
    for of_mxnet, number in training.gpus().items():
        allocated, peak = held.get(of_mxnet, (0, 0))
        free, total = training.mx.context.gpu_memory_info(of_mxnet)
        sizes = {"allocated_bytes": allocated, "reserved_bytes": total - free, "peak_bytes": peak}
        found.append({"device": f"gpu{number}", **sizes})
    return found


def new_file():
    return str(Path(tempfile.mkdtemp(prefix="dlscale-mxnet-")) / "profile.json")


class Operators:
    """Every operator that the engine runs while it is on; `gpus` are the numbers in the job of MXNet's GPUs."""

    source = "mxnet.profiler"
    whole = False

    def __init__(self, mx, gpus):
        self.mx, self.gpus, self.file, self.offset = mx, gpus, new_file(), None
        # Not `profile_all`, which adds each call of MXNet's own C interface.
        mx.profiler.set_config(filename=self.file, profile_symbolic=True, profile_imperative=True, profile_api=False)

    def start(self):
        if self.offset is None:
            self.offset = profiling.realtime_offset_ns() / 1e9
        self.mx.profiler.set_state("run")

    def stop(self):
        self.mx.profiler.set_state("stop")

    def columns(self):
        self.mx.profiler.dump(finished=True)  # once: MXNet can't be told to profile again after it
        trace = json.loads(Path(self.file).read_text(encoding="utf-8"))["traceEvents"]
        return columns(trace, gpus=self.gpus, offset=self.offset)


def columns(trace, *, gpus, offset):
    """Turn events of the Chrome trace format into columns of the table `kernels`; `offset`: seconds from the monotonic clock to theirs.

    Devices are the trace's processes, named `gpu/0`. Of the two records that MXNet keeps of an operator only that of its device is
    taken (begin and end one after the other, phases B and E); the other (b and e) is for its own sums.
    """
    names = {event["pid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    threads, begun, rows = {}, {}, []
    for event in trace:
        thread = event.get("pid"), event.get("tid")
        if event["ph"] == "B":
            begun[thread] = event
        elif event["ph"] == "E" and thread in begun:
            kind, _, number = names.get(event["pid"], "cpu/").partition("/")
            start = begun.pop(thread)["ts"]
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
    """What MXNet's storage has handed out on each device, counted by its profiler from here on; to be made before the model.

    `kind` is that of the devices, `gpu` or `cpu`.
    """

    def __init__(self, mx, kind="gpu"):
        super().__init__("mxnet.profiler")
        self.mx, self.kind, self.file, self.read, self.allocated = mx, kind, new_file(), 0, {}
        others = {"profile_symbolic": False, "profile_imperative": False, "profile_api": False}
        mx.profiler.set_config(filename=self.file, profile_memory=True, **others)
        mx.profiler.set_state("run")

    def held(self):
        """Bytes held now, and at the most since the last call, by number of the device."""
        self.mx.profiler.dump(finished=False)  # adds what is new to the file
        with open(self.file, encoding="utf-8") as file:  # noqa: PTH123 - it is read from where the last call ended
            file.seek(self.read)
            said = file.read()
            self.read = file.tell()
        peaks = dict(self.allocated)
        for _, kind, device, size in sorted(
            (int(moment), kind, int(number), int(text)) for moment, kind, number, text in MEMORY_COUNTER.findall(said)
        ):
            if kind == self.kind:
                self.allocated[device] = size
                peaks[device] = max(peaks.get(device, 0), size)
        return {device: (size, peaks[device]) for device, size in self.allocated.items()}
