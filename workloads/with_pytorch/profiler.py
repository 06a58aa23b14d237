"""PyTorch's side of a profiling pass (`profiling.py`)."""

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
    """torch.profiler: kernels, copies and calls through CUPTI, operators from PyTorch itself.

    It starts only once: of traces within milliseconds of each other, CUPTI fills only the first (driver 580, PyTorch 2.11).
    """

    source = "torch.profiler"
    whole = True

    def __init__(self, device, number):
        """Trace the work of `device`, which is GPU `number` of the job."""
        self.device, self.number = device, number
        self.activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self.activities.append(ProfilerActivity.CUDA)
        # The first trace of a process loads libraries and connects, which takes a second.
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
        # The trace lacks the FLOP of operators, the event list lacks grid and block.
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
        training.regions.annotate = torch.cuda.nvtx.range if on_gpu else None  # shown by nsys and ncu
    return profiling.tracer(
        kind,
        kernels=lambda: Kineto(training.device, training.ranks.rank),
        memory=profiling.Clock("torch.cuda.memory_stats" if on_gpu else "/proc/self/status"),
        calls=training.recorder,
        cuda=f"libcudart.so.{torch.version.cuda.partition('.')[0]}" if on_gpu else None,
    )


def memory(training):
    """Allocated and reserved bytes of the caching allocator on a GPU, or the resident set of this process on a CPU."""
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
    """Count a forward and a backward pass, dropping the gradients: twice the multiply-adds of operators with a formula in PyTorch."""
    with FlopCounterMode(display=False) as forward_counter:
        loss = forward()
    with FlopCounterMode(display=False) as backward_counter:
        # Not backward(): a gradient that reaches a parameter triggers its exchange.
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
        for phase, counter in (("forward", forward_counter), ("backward", backward_counter))
    ]
