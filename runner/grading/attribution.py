"""Where the time of a step went: input, compute, stragglers, and what is left for the wires. Pure.

A step of a synchronous job ends when its slowest rank has computed and all gradients have been exchanged. What a rank computes when
nobody exchanges anything was timed beside the job (event `compute`), and so was the exchange alone (event `bandwidth`); what the step
took longer than the one is what the other did not hide.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from runner.events import Bandwidth, Compute, Event, Window
from runner.grading.model import Exchange, StepParts


def exchanges(events: Sequence[Event]) -> tuple[Exchange, ...]:
    """The probe of a training program, in the order of sizes; nothing of what a benchmark's log says, which times no single exchange."""
    found = [
        Exchange(
            operation=event.operation or "unknown",
            size_bytes=event.size_bytes,
            seconds=statistics.median(event.seconds),
            algbw_gb_s=event.algbw_gb_s,
            busbw_gb_s=event.busbw_gb_s,
            wrong=event.wrong,
        )
        for event in events
        if isinstance(event, Bandwidth) and event.seconds
    ]
    return tuple(sorted(found, key=lambda exchange: exchange.size_bytes))


def exchange_seconds(probe: Sequence[Exchange], size_bytes: int) -> float | None:
    """Seconds that an exchange of `size_bytes` would take by itself; None without a probe.

    Between two sizes that were timed it lies on the line through both. Beyond the largest, bandwidth is that of the largest; below
    the smallest, it takes as long as the smallest, whose time is latency.
    """
    if not probe:
        return None
    largest = probe[-1]
    if size_bytes > largest.size_bytes:
        return largest.seconds * size_bytes / largest.size_bytes
    sizes, seconds = [one.size_bytes for one in probe], [one.seconds for one in probe]
    return float(np.interp(size_bytes, sizes, seconds))


def step_parts(
    events: Sequence[Event], *, first_window: int, seconds: float, gradient_bytes: int | None
) -> StepParts | None:
    """Attribute the steady windows of a run.

    Args:
        events: all events of all ranks.
        first_window: number of the first window that counts.
        seconds: wall time from there to the end of the last window that every rank has.
        gradient_bytes: what a device hands over to be exchanged in one step.

    Returns:
        None where the program told nothing but its windows.
    """
    ranks: dict[int, list[Window]] = {}
    for event in events:
        if isinstance(event, Window):
            ranks.setdefault(event.rank, []).append(event)
    ordered = [sorted(windows, key=lambda w: w.index)[first_window:] for windows in ranks.values()]
    joined = list(zip(*ordered, strict=False))  # the windows that every rank has
    steps = sum(windows[0].iterations for windows in joined)
    waits = [_longest(windows) for windows in joined]
    waited = None if None in waits or not steps else math.fsum(wait for wait in waits if wait is not None) / steps
    passes = [statistics.median(event.seconds) for event in events if isinstance(event, Compute)]
    probe = exchanges(events)
    if not steps or (waited is None and not passes and not probe):
        return None
    step_s = seconds / steps
    slowest = max(passes, default=None)
    mean = statistics.fmean(passes) if passes else None
    unhidden = waited if waited is None or slowest is None else min(waited, max(0.0, step_s - slowest))
    return StepParts(
        step_s=step_s,
        input_waited_s=waited,
        input_s=unhidden,
        compute_s=mean,
        compute_slowest_s=slowest,
        stragglers_s=slowest - mean if slowest is not None and mean is not None and len(passes) > 1 else None,
        rest_s=step_s - slowest - unhidden if slowest is not None and unhidden is not None else None,
        exchange_alone_s=exchange_seconds(probe, gradient_bytes) if gradient_bytes is not None else None,
    )


def _longest(windows: Sequence[Window]) -> float | None:
    """The longest wait of the ranks in one window; None where one does not tell."""
    waits = [window.input_seconds for window in windows if window.input_seconds is not None]
    return max(waits) if len(waits) == len(windows) else None
