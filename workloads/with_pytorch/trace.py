"""Turns the Chrome trace that PyTorch's profiler exports into rows of table `kernels` (`events.py`). Standard library only.

Of Kineto's two outputs, only the trace has grid, block and bytes, and streams and calls in every version from 2.6 on. Its categories are
`kernel`, `gpu_memcpy` and `gpu_memset` on devices, `cuda_runtime` and `cuda_driver` for calls, `cpu_op` for the framework's operators and
`user_annotation` for named ranges, of which collectives are kept: `nccl:all_reduce`, `gloo:broadcast`. An operator's `External
id` is its number; a call carries that of its operator, and a kernel that of its call.

Times are microseconds of Kineto's own clock, which follows CLOCK_REALTIME. To map them to the monotonic clock, the program reads that
clock right before and inside a few annotations called `MARK`; Kineto's start of each lies between the two readings.
"""

MARK = "dlscale.clock"
KINDS = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "set",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "cpu_op": "op",
}
COLLECTIVES = ("nccl:", "gloo:", "ucc:", "mpi:")
ON_DEVICE = ("kernel", "copy", "set")
OWN_CALLS = ("cudaProfilerStart", "cudaProfilerStop", "cuProfilerStart", "cuProfilerStop")
COLUMNS = (
    *("kind", "name", "device", "stream", "start", "duration", "grid", "block", "bytes"),
    *("correlation", "op", "parent", "flop"),
)


def rows(trace, marks, *, device, flop):
    """Convert the events of a trace to dicts with the keys `COLUMNS`, ordered by start.

    `marks` are (before, inside) of each annotation in seconds; `device` is the index of this process' GPU in the job; `flop` maps
    operator numbers to floating-point operations.
    """
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    ahead_us = clock_ahead(events, marks)
    found = []
    for event in sorted(events, key=lambda event: event["ts"]):
        kind = kind_of(event)
        if kind is None:
            continue
        args = event["args"]
        row = dict.fromkeys(COLUMNS)
        row.update(kind=kind, name=event["name"], device=-1, stream=event["tid"], op=args.get("External id") or None)
        row["start"] = round((event["ts"] - ahead_us) / 1e6, 9)
        row["duration"] = round(event["dur"] / 1e6, 9)
        if kind in ON_DEVICE:
            row.update(device=device, stream=args["stream"], bytes=args.get("bytes"))
            row.update({edge: ",".join(map(str, args[edge])) for edge in ("grid", "block") if edge in args})
        if kind != "op":
            row["correlation"] = args.get("correlation")
        found.append(row)
    operators = [row for row in found if row["kind"] == "op"]
    name_parents(operators)
    operator_numbers = {row["op"] for row in operators}
    for row in found:
        if row["kind"] == "op":
            row["flop"] = flop.get(row["op"])
        elif row["op"] not in operator_numbers:  # an annotation's number, or none
            row["op"] = None
    return found


def kind_of(event):
    """Kind of a trace event in the table; None for events that are left out."""
    if event.get("cat") == "user_annotation" and event["name"].startswith(COLLECTIVES):
        return "op"
    return None if event["name"] in OWN_CALLS else KINDS.get(event.get("cat"))


def clock_ahead(events, marks):
    """Microseconds by which the trace's clock is ahead of the monotonic one: the midpoint of the tightest mark."""
    starts = sorted(event["ts"] for event in events if event["name"] == MARK and event.get("cat") == "user_annotation")
    if len(starts) != len(marks):
        raise ValueError(f"the trace holds {len(starts)} of {len(marks)} marks of the clock")
    _, before, inside, start = min(
        (inside - before, before, inside, start) for (before, inside), start in zip(marks, starts, strict=True)
    )
    return start - (before + inside) / 2 * 1e6


def name_parents(operators):
    """Set the parent of every operator: on its thread, the last one to begin that has not ended."""
    running = {}
    for row in sorted(operators, key=lambda row: (row["start"], -row["duration"])):
        stack = running.setdefault(row["stream"], [])
        while stack and stack[-1]["start"] + stack[-1]["duration"] <= row["start"]:
            stack.pop()
        if stack:
            row["parent"] = stack[-1]["op"]
        stack.append(row)
