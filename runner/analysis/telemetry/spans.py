"""When the figures of each node were measured, on its own clock: from the events of its ranks and of its sampler."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from runner.analysis.grading.metrics import common_windows
from runner.analysis.telemetry.series import SECOND
from runner.core.events import PAUSE_S, Event, MonitorStart, Net, Phase, ProfileStart, ProfileStop, Window
from runner.core.telemetry import NodeSpans, Span
from runner.core.trial import Trial


def node_spans(
    events: Sequence[Event], *, monitors: Mapping[str, str], first_window: int, started: float
) -> tuple[NodeSpans, ...]:
    """Find the counted windows and the idle time before the job of every node, by name; nothing without samplers or a window that counts.

    Args:
        events: all events of all ranks and samplers.
        monitors: by the sampler's container, its node. One that stands alone looks at all ranks: nodes are then emulated, or one.
        first_window: number of the first window that counts (`Steadiness.first_window`).
        started: the runner's monotonic clock in seconds when it began to create the first container of the job.
    """
    ranks = common_windows([event for event in events if isinstance(event, Window)])
    if not monitors or not any(windows[first_window:] for windows in ranks.values()):
        return ()
    imported = {event.rank: event.t for event in events if isinstance(event, Phase) and event.name == "import"}
    told = {event.rank: event.node for event in events if isinstance(event, Net) and event.node}
    first = next(iter(monitors.values()))
    counted: dict[str, list[Window]] = {}
    used: dict[str, list[float]] = {}
    for rank, windows in ranks.items():
        node = first if len(monitors) == 1 else told.get(rank, first)
        counted.setdefault(node, []).extend(windows[first_window:])
        used.setdefault(node, []).append(imported.get(rank, -math.inf))
    began = {event.node: event for event in events if isinstance(event, MonitorStart)}
    found = []
    for node, windows in sorted(counted.items()):
        sampler = began.get(node)
        # The two clocks are held against each other by the sampler's first line, which is read a moment after it was written: the job's
        # beginning comes out that moment too early, never too late.
        idle = _before(sampler, started - (sampler.received - sampler.t) if sampler else started)
        # Before the first rank has imported its framework, no program of the suite uses a GPU.
        gpus_idle = None if idle and idle.seconds >= SECOND else _before(sampler, min(used[node]))
        found.append(
            NodeSpans(
                node=node,
                measured=Span(start=min(w.start for w in windows), end=max(w.start + w.seconds for w in windows)),
                idle=idle,
                gpus_idle=gpus_idle,
                pauses=tuple(_pauses(windows)),
            )
        )
    return tuple(found)


def _pauses(windows: Sequence[Window]) -> Iterator[Span]:
    """Between two windows of all ranks: from the end of the slowest rank's to the start of the first one's next."""
    numbers = sorted({window.index for window in windows})
    for before, after in pairwise(numbers):
        end = max(w.start + w.seconds for w in windows if w.index == before)
        start = min(w.start for w in windows if w.index == after)
        if start - end > PAUSE_S:
            yield Span(start=end, end=start)


def _before(sampler: MonitorStart | None, end: float) -> Span | None:
    """From the sampler's beginning until a moment of the node's clock; None where the moment came first."""
    return Span(start=sampler.t, end=end) if sampler and end > sampler.t else None


def pass_windows(trial: Trial, events: Sequence[Event]) -> tuple[Window, ...]:
    """One window a rank for the pass of kind `metrics` whose counters the sampler reads; none unless every rank ended its own.

    Of other passes there are none: a profiler's own work, and kernels that are run again and again, are nothing that a machine does by
    itself.
    """
    counting = trial.profile.counting if trial.profile else None
    starts = {event.rank: event.t for event in events if isinstance(event, ProfileStart)}
    stops = {event.rank: event for event in events if isinstance(event, ProfileStop)}
    if counting is None or counting.source == "ncu" or len(stops) != trial.processes:
        return ()
    return tuple(
        Window(
            **stop.model_dump(include={"rank", "t", "received", "container", "iterations"}),
            event="window",
            index=0,
            start=starts[rank],
            samples=stop.iterations * trial.global_batch // trial.processes,
            seconds=stop.t - starts[rank],
        )
        for rank, stop in sorted(stops.items())
    )
