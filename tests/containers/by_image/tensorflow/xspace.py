"""Inside the image: rows of a handmade XSpace, like one from TensorFlow's profiler on a machine with two GPUs.

Prevents: kernels without the operator that launched them, copies without bytes, the profiler's own times and allocations in the table, a GPU
with the driver's number instead of the job's, times on the wrong clock, an operator that is its neighbour's child.
"""

from tensorflow.tsl.profiler.protobuf import xplane_pb2
from with_tensorflow.profiler import Table

REALTIME_NS = 1_795_271_556_000_000_000
MONOTONIC_NS = 5_000_000_000  # at the same moment


class Plane:
    def __init__(self, space, name):
        self.plane = space.planes.add(name=name)
        self.names = {}

    def stat(self, holder, name, **found):
        number = self.names.setdefault(name, len(self.names) + 1)
        self.plane.stat_metadata[number].id = number
        self.plane.stat_metadata[number].name = name
        holder.stats.add(metadata_id=number, **found)

    def word(self, holder, name, text):
        """Add a stat whose value is stored once, and referenced."""
        number = self.names.setdefault(text, len(self.names) + 1)
        self.plane.stat_metadata[number].id = number
        self.plane.stat_metadata[number].name = text
        self.stat(holder, name, ref_value=number)

    def event(self, line, name, start_us, duration_us, *, display=""):
        number = len(self.plane.event_metadata) + 1
        metadata = self.plane.event_metadata[number]
        metadata.id, metadata.name, metadata.display_name = number, name, display
        return line.events.add(metadata_id=number, offset_ps=start_us * 10**6, duration_ps=duration_us * 10**6)


space = xplane_pb2.XSpace()
session = Plane(space, "Task Environment")
session.stat(session.plane, "profile_start_time", uint64_value=REALTIME_NS)

host = Plane(space, "/host:CPU")
thread = host.plane.lines.add(id=77, timestamp_ns=0)
host.event(thread, "ExecutorState::Process", 0, 1000)  # neither an operator nor a call
host.event(thread, "cluster:PartitionedCall", 10, 90, display="PartitionedCall")
host.event(thread, "conv1/Conv2D:Conv2D", 20, 30, display="Conv2D")
launch = host.event(thread, "cuLaunchKernel", 25, 5)
host.stat(launch, "correlation_id", uint64_value=501)
host.event(thread, "relu:Relu", 50, 10, display="Relu")  # starts when the one before ends
copy = host.event(thread, "cuMemcpyHtoDAsync_v2", 200, 4)
host.stat(copy, "correlation_id", uint64_value=502)

Plane(space, "/device:GPU:0").plane.lines.add(id=1)  # another process' GPU
gpu = Plane(space, "/device:GPU:1")
stream = gpu.plane.lines.add(id=20, timestamp_ns=0)
kernel = gpu.event(stream, "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", 40, 55)
gpu.stat(kernel, "correlation_id", uint64_value=501)
gpu.word(kernel, "kernel_details", "regs:126 static_shared:0 dynamic_shared:49152 grid:64,4,1 block:256,1,1 occ_pct:25")
moved = gpu.event(stream, "MemcpyH2D", 205, 3)
gpu.stat(moved, "correlation_id", uint64_value=502)
gpu.word(moved, "memcpy_details", "kind_src:pageable kind_dst:device size:98304 dest:0 async:1")
cleared = gpu.event(stream, "Memset", 300, 1)
gpu.word(cleared, "memset_details", "kind:device num_bytes:4096 async:1")
allocated = gpu.event(stream, "cuMemAlloc_v2", 310, 1)
gpu.word(allocated, "memalloc_details", "kind:device num_bytes:1048576")

table = Table(first_gpu=3)
table.add(space, offset=REALTIME_NS - MONOTONIC_NS)
columns = table.columns()
assert len({len(values) for values in columns.values()}) == 1
rows = {
    row["name"]: row for row in (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
}
assert sorted((row["kind"], name) for name, row in rows.items()) == [
    ("call", "cuLaunchKernel"),
    ("call", "cuMemcpyHtoDAsync_v2"),
    ("copy", "Memcpy HtoD"),
    ("kernel", "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"),
    ("op", "Conv2D"),
    ("op", "PartitionedCall"),
    ("op", "Relu"),
    ("set", "Memset"),
]
outer, conv, relu = rows["PartitionedCall"], rows["Conv2D"], rows["Relu"]
assert (outer["parent"], conv["parent"], relu["parent"]) == (None, outer["op"], outer["op"])
assert (conv["device"], conv["start"], conv["duration"]) == (-1, 5.00002, 3e-5)
winograd = rows["volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"]
assert (winograd["device"], winograd["stream"], winograd["grid"], winograd["block"]) == (3, 20, "64,4,1", "256,1,1")
assert (winograd["start"], winograd["duration"]) == (5.00004, 5.5e-5)
assert winograd["correlation"] == rows["cuLaunchKernel"]["correlation"] == 501
assert winograd["op"] == rows["cuLaunchKernel"]["op"] == conv["op"]
assert (rows["Memcpy HtoD"]["bytes"], rows["Memcpy HtoD"]["op"]) == (98304, None)
assert rows["Memset"]["bytes"] == 4096

empty = Table(first_gpu=0).columns()
assert empty["start"] == [], "a pass in which nothing ran has columns all the same"
