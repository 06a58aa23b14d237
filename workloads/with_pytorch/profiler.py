"""What the PyTorch program tells of a pass under a profiler, as `profiling.py` asks for it."""

import json
import tempfile
import time
from pathlib import Path

import profiling
import torch
from torch.profiler import ProfilerActivity, record_function
from torch.utils.flop_counter import FlopCounterMode
from with_pytorch.trace import COLUMNS, MARK, rows

MARKS = 5  # the first is slow


class Kineto:
    """torch.profiler: kernels, copies and calls by CUPTI, operators by PyTorch itself.

    It starts once: of traces that follow each other within milliseconds CUPTI fills the first alone (driver 580, PyTorch 2.11).
    """

    source = "torch.profiler"
    whole = True

    def __init__(self, device, number):
        """Trace what runs on `device`, which is GPU `number` of the job."""
        self.device, self.number = device, number
        self.activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self.activities.append(ProfilerActivity.CUDA)
        # The first trace of a process loads and connects what the next finds ready, which takes a second.
        self.start()
        torch.zeros(1, device=device).add_(1).cpu()
        self.stop()

    def start(self):
        self.profile = torch.profiler.profile(activities=self.activities, with_flops=True)
        self.profile.start()
        self.marks = []
        for _ in range(MARKS):
            before = time.monotonic()
            with record_function(MARK):
                self.marks.append((before, time.monotonic()))

    def stop(self):
        self.profile.stop()

    def columns(self):
        # The trace leaves out how many floating-point operations an operator has, the list of events grid and block.
        flop = {event.id: event.flops for event in self.profile.events() if event.flops}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self.profile.export_chrome_trace(str(path))
            trace = json.loads(path.read_text(encoding="utf-8"))
        found = rows(trace, self.marks, device=self.number, flop=flop)
        return {name: [row[name] for row in found] for name in COLUMNS}


def profiler(training, kind):
    on_gpu = training.on_gpu
    if kind == "kernels":
        training.regions.annotate = record_function
    else:
        training.regions.annotate = torch.cuda.nvtx.range if on_gpu else None  # nsys and ncu show it
    return profiling.tracer(
        kind,
        kernels=lambda: Kineto(training.device, training.ranks.rank),
        memory=profiling.Clock("torch.cuda.memory_stats" if on_gpu else "/proc/self/status"),
        calls=training.recorder,
        cuda=f"libcudart.so.{torch.version.cuda.partition('.')[0]}" if on_gpu else None,
    )


def memory(training):
    """What the caching allocator has handed out and holds on the GPU, or the resident set of this process on a CPU."""
    if not training.on_gpu:
        return profiling.host_memory()
    found = torch.cuda.memory_stats(training.device)
    torch.cuda.reset_peak_memory_stats(training.device)
    names = {
        "allocated_bytes": "allocated_bytes.all.current",
        "reserved_bytes": "reserved_bytes.all.current",
        "peak_bytes": "allocated_bytes.all.peak",
    }
    return [{"device": f"gpu{training.ranks.rank}", **{name: found[key] for name, key in names.items()}}]


def flop_counts(forward, parameters, *, samples):
    """Count a forward and a backward pass, whose gradients are dropped: twice the multiply-adds of what has a formula in PyTorch."""
    with FlopCounterMode(display=False) as ahead:
        loss = forward()
    with FlopCounterMode(display=False) as back:
        # Gradients that reach a parameter would be exchanged by what waits for them there.
        torch.autograd.grad(loss, parameters)
    return [
        {
            "source": "torch.utils.flop_counter",
            "phase": phase,
            "flop_per_sample": counter.get_total_flops() / samples,
            "operators": {
                str(operator): flop / samples for operator, flop in counter.get_flop_counts()["Global"].items()
            },
        }
        for phase, counter in (("forward", ahead), ("backward", back))
    ]
