"""Output of a sampler: rows of the table `telemetry` as a DataFrame, and the events around them."""

from __future__ import annotations

import pandas as pd
from program_events import program_event

from runner.core.events import MonitoredGpu, MonitorStart, MonitorStop, Net, Phase, Trouble, Window
from runner.core.events.parse import COLUMNS
from runner.core.telemetry import NodeSpans, Span

MONITOR = "dlscale-x-monitor0"


def beats(start, end, hz=10):
    """Sampling times, both ends included."""
    return [start + number / hz for number in range(round((end - start) * hz) + 1)]


def rows(t, *, device="gpu0", node="here", **columns):
    """Rows of one device; a column is a list, a constant, or a function of time."""
    table = {name: [None] * len(t) for name in COLUMNS["telemetry"]}
    table |= {"node": [node] * len(t), "rank": [0] * len(t), "device": [device] * len(t), "t": list(t)}
    for name, values in columns.items():
        if callable(values):
            values = [values(at) for at in t]  # noqa: PLW2901
        elif not isinstance(values, list):
            values = [values] * len(t)  # noqa: PLW2901
        assert name in table
        assert len(values) == len(t)
        table[name] = values
    return pd.DataFrame(table)


def frame(*parts):
    """Join the tables of several devices."""
    return pd.concat([part.astype(object) for part in parts], ignore_index=True)


def gpu(index=0, **changes):
    facts = {"power_limit_w": 700.0, "default_power_limit_w": 700.0, "counters": "gpm", "power_reading": "instant"}
    return MonitoredGpu(**({"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200"} | facts | changes))


def started(*gpus, node="here", hz=10, cores=4, t=0.0, **changes):
    sources = {"nvml": None, "gpm": None, "dcgm": "GPM is here", "psutil": None, "rapl": None}
    if not gpus:
        sources |= dict.fromkeys(("nvml", "gpm", "dcgm"), "no NVIDIA device")
    fields = {"gpus": gpus, "node": node, "hz": hz, "cores": cores, "sources": sources, "t": t}
    return program_event(MonitorStart, **({"container": MONITOR} | fields | changes))


def stopped(seconds=20.0, cpu_s=0.02, **changes):
    return program_event(
        MonitorStop, samples=200, seconds=seconds, cpu_s=cpu_s, **({"container": MONITOR, "t": 20.0} | changes)
    )


def trouble(device, *fields, reason, t=0.0, **changes):
    return program_event(
        Trouble, device=device, fields=fields, reason=reason, **({"container": MONITOR, "t": t} | changes)
    )


def window(rank=0, index=0, *, start=10.0, seconds=1.0):
    length = {"start": start, "seconds": seconds, "iterations": 1, "samples": 32}
    return program_event(Window, rank=rank, index=index, t=start + seconds, **length)


def net(rank, node):
    return program_event(Net, rank=rank, where="start", interfaces={}, node=node)


def phase(name, *, rank=0, t):
    return program_event(Phase, rank=rank, name=name, seconds=2.0, t=t)


def spans(start=10.0, end=14.0, *, idle=(0.0, 3.0), gpus_idle=None, node="here"):
    rests = {
        name: Span(start=at[0], end=at[1]) if at else None for name, at in (("idle", idle), ("gpus_idle", gpus_idle))
    }
    return NodeSpans(node=node, measured=Span(start=start, end=end), **rests)
