"""TensorFlow 2's side of a profiling pass (`profiling.py`): operators, kernels, copies and CUDA calls.

`tf.profiler.experimental` writes an XSpace (tensorflow/tsl/profiler/protobuf/xplane.proto; TensorFlow ships the Python
classes): planes for the host and each GPU, each with a line per thread or stream, each with events. Times are picoseconds since a
start that the XSpace gives in CLOCK_REALTIME; they are shifted by the offset between that clock and CLOCK_MONOTONIC, read at that start.

A host line has operators, whose display name is their type (`node:Type`), and calls of the CUDA driver, which have a
correlation id. Work on a GPU has one too, and a description in words (xla/backends/profiler/gpu/cupti_collector.cc). An operator is
named by its type, which is the same in every step and model: `Conv2DBackpropFilter`, or oneDNN's `_MklNativeConv2DBackpropFilter`.
"""

import re
import tempfile
from pathlib import Path

from profiling import Clock, host_memory, realtime_offset_ns, tracer

CUDA = "libcudart.so.12"
HOST_MEMORY, GPU_MEMORY = "/proc/self/status", "tf.config.experimental.get_memory_info"
COLUMNS = (
    *("kind", "name", "device", "stream", "start", "duration", "grid", "block", "bytes"),
    *("correlation", "op", "parent"),
)
HOST, GPU, SESSION = "/host:CPU", "/device:GPU:", "Task Environment"
SIZE = re.compile(r"\b(?:size|num_bytes):(\d+)")
GRID = re.compile(r"\bgrid:([\d,]+)")
BLOCK = re.compile(r"\bblock:([\d,]+)")
# Names as CUPTI's other readers write them.
COPIES = {
    "MemcpyH2D": "Memcpy HtoD",
    "MemcpyD2H": "Memcpy DtoH",
    "MemcpyD2D": "Memcpy DtoD",
    "MemcpyP2P": "Memcpy PtoP",
}
# Host level 2 has operators, level 3 also their parts; no Python calls.
LEVELS = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 1}


def profiler(training, kind):
    return tracer(
        kind,
        kernels=lambda: Tracer(training.tf, first_gpu(training)),
        memory=Clock(GPU_MEMORY if training.on_gpu else HOST_MEMORY),
        cuda=CUDA if training.on_gpu else None,
    )


def first_gpu(training):
    """Index in the job of this process' first GPU."""
    return training.ranks.rank * training.args.devices


def memory(training):
    """Memory of every device for `profiling.py`; on GPUs, what TensorFlow's allocator has handed out."""
    config = training.tf.config
    found = []
    for number, device in enumerate(config.list_logical_devices("GPU"), start=first_gpu(training)):
        gpu = device.name.partition(":")[2]  # GPU:0 of /device:GPU:0
        held = config.experimental.get_memory_info(gpu)
        config.experimental.reset_memory_stats(gpu)
        sizes = {"allocated_bytes": held["current"], "reserved_bytes": None, "peak_bytes": held["peak"]}
        found.append({"device": f"gpu{number}", **sizes})
    return found or host_memory()


class Tracer:
    """Records everything that runs between start and stop; each such session writes a file."""

    source = "tf.profiler"
    whole = False

    def __init__(self, tf, first_gpu):
        self.tf, self.first_gpu, self.sessions = tf, first_gpu, []

    def start(self):
        folder = tempfile.mkdtemp(prefix="dlscale-tensorflow-")
        self.sessions.append((folder, realtime_offset_ns()))
        self.tf.profiler.experimental.start(folder, options=self.tf.profiler.experimental.ProfilerOptions(**LEVELS))

    def stop(self):
        self.tf.profiler.experimental.stop()

    def columns(self):
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        table = Table(first_gpu=self.first_gpu)
        for folder, offset in self.sessions:
            for file in Path(folder).glob("**/*.xplane.pb"):
                table.add(xplane_pb2.XSpace.FromString(file.read_bytes()), offset=offset)
        return table.columns()


class Table:
    """Rows of table `kernels`, by column, from any number of XSpaces.

    TensorFlow numbers GPUs as the CUDA driver does, and has a plane for each visible one; the non-empty planes are
    this process' own, and `first_gpu` is the index in the job of the first of them.
    """

    def __init__(self, *, first_gpu):
        self.rows, self.ops, self.first_gpu = [], 0, first_gpu

    def add(self, space, *, offset):
        """Add the contents of one XSpace; `offset`: nanoseconds from the monotonic clock to its clock."""
        calls = {}  # correlation id: operator that made the call
        (began,) = (
            value(plane, stat)
            for plane in space.planes
            if plane.name == SESSION
            for stat in plane.stats
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time"
        )
        for plane in space.planes:
            if plane.name == HOST:
                for thread, line in enumerate(plane.lines):
                    self.add_thread(plane, line, thread, calls, began=began - offset)
        gpus = [
            plane for plane in space.planes if plane.name.startswith(GPU) and any(line.events for line in plane.lines)
        ]
        gpus.sort(key=lambda plane: int(plane.name[len(GPU) :]))
        for device, plane in enumerate(gpus, start=self.first_gpu):
            for line in plane.lines:
                self.add_stream(plane, line, device, calls, began=began - offset)

    def add_thread(self, plane, line, thread, calls, *, began):
        """Add operators and calls of one thread; an operator that runs within another has it as its parent."""
        open_ops = []  # (end, number) of the operators that enclose the next event
        for event in sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps)):
            metadata = plane.event_metadata[event.metadata_id]
            stats = described(plane, event)
            is_op = bool(metadata.display_name) and metadata.name.endswith(":" + metadata.display_name)
            if not is_op and "correlation_id" not in stats:
                continue
            while open_ops and open_ops[-1][0] <= event.offset_ps:
                open_ops.pop()
            around = open_ops[-1][1] if open_ops else None
            row = placed(line, event, began=began, device=-1, stream=thread)
            if is_op:
                row.update(kind="op", name=metadata.display_name, op=self.ops, parent=around)
                open_ops.append((event.offset_ps + event.duration_ps, self.ops))
                self.ops += 1
            else:
                calls[stats["correlation_id"]] = around
                row.update(kind="call", name=metadata.name, correlation=stats["correlation_id"], op=around)
            self.rows.append(row)

    def add_stream(self, plane, line, device, calls, *, began):
        """Add kernels, copies and sets of one stream of a GPU."""
        for event in line.events:
            stats = described(plane, event)
            name = plane.event_metadata[event.metadata_id].name
            row = placed(line, event, began=began, device=device, stream=line.id)
            if "kernel_details" in stats:
                words = stats["kernel_details"]
                row.update(kind="kernel", name=name, grid=first(GRID, words), block=first(BLOCK, words))
            elif "memcpy_details" in stats:
                size = int(first(SIZE, stats["memcpy_details"]))
                row.update(kind="copy", name=COPIES.get(name, name), bytes=size)
            elif "memset_details" in stats:
                row.update(kind="set", name=name, bytes=int(first(SIZE, stats["memset_details"])))
            else:  # an allocation, or the profiler's own work
                continue
            row.update(correlation=stats.get("correlation_id"), op=calls.get(stats.get("correlation_id")))
            self.rows.append(row)

    def columns(self):
        return {name: [row.get(name) for row in self.rows] for name in COLUMNS}


def placed(line, event, *, began, device, stream):
    start = (began + line.timestamp_ns + event.offset_ps / 1e3) / 1e9
    return {
        "device": device,
        "stream": stream,
        "start": round(start, 9),
        "duration": round(event.duration_ps / 1e12, 9),
    }


def described(plane, event):
    return {plane.stat_metadata[stat.metadata_id].name: value(plane, stat) for stat in event.stats}


def value(plane, stat):
    """The value of a stat; frequent strings are stored once and referenced."""
    kind = stat.WhichOneof("value")
    found = getattr(stat, kind)
    return plane.stat_metadata[found].name if kind == "ref_value" else found


def first(pattern, words):
    found = pattern.search(words)
    return found.group(1) if found else None
