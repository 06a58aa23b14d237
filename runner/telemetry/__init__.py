"""What devices and hosts did while a run was measured: from the samples of each node's sampler to figures, and doubts about them.

Values in, values out. What can't be had stays away and is named with its reason; nothing is guessed over a hole in the samples.
"""

from runner.telemetry.doubts import doubts
from runner.telemetry.model import (
    ForeignProcess,
    GpuTelemetry,
    HostTelemetry,
    Missing,
    NodeSpans,
    Range,
    Span,
    Telemetry,
)
from runner.telemetry.pool import pool
from runner.telemetry.spans import node_spans
from runner.telemetry.summary import summarize

__all__ = [
    "ForeignProcess",
    "GpuTelemetry",
    "HostTelemetry",
    "Missing",
    "NodeSpans",
    "Range",
    "Span",
    "Telemetry",
    "doubts",
    "node_spans",
    "pool",
    "summarize",
]
