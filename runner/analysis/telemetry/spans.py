"""When the figures of each node were measured, on its own clock: from the events of its ranks and of its sampler."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from runner.analysis.telemetry.series import SECOND
from runner.core.events import Event
from runner.core.events.monitor import MonitorStart
from runner.core.events.training import PAUSE_S, Phase, Window
from runner.core.events.wires import Net
from runner.core.telemetry import NodeSpans, Span


def node_spans(
    events: Sequence[Event], *, monitors: Mapping[str, str], first_window: int, started: float
) -> tuple[NodeSpans, ...]:
    """Find the counted windows and the idle time before the job of every node, in the order of their names.

    Args:
        events: all events of all ranks and samplers.
        monitors: by the sampler's container, its node. One that stands alone looks at all ranks: nodes are then emulated, or one.
        first_window: number of the first window that counts (`Steadiness.first_window`).
        started: the runner's monotonic clock in seconds when it began to create the first container of the job.

    Returns:
        Nothing where there are no samplers or no window counts.
    """
    ranks: dict[int, list[Window]] = {}
    imported: dict[int, float] = {}
    for event in events:
        if isinstance(event, Window):
            ranks.setdefault(event.rank, []).append(event)
        if isinstance(event, Phase) and event.name == "import":
            imported[event.rank] = event.t
    common = min((len(windows) for windows in ranks.values()), default=0)
    if not monitors or common <= first_window:
        return ()
    told = {event.rank: event.node for event in events if isinstance(event, Net) and event.node}
    first = next(iter(monitors.values()))
    counted: dict[str, list[Window]] = {}
    used: dict[str, list[float]] = {}
    for rank, windows in ranks.items():
        node = first if len(monitors) == 1 else told.get(rank, first)
        counted.setdefault(node, []).extend(sorted(windows, key=lambda w: w.index)[first_window:common])
        used.setdefault(node, []).append(imported.get(rank, -math.inf))
    began = {event.node: event for event in events if isinstance(event, MonitorStart)}
    return tuple(
        NodeSpans(
            node=node,
            measured=Span(start=min(w.start for w in windows), end=max(w.start + w.seconds for w in windows)),
            idle=(idle := _idle(began.get(node), started)),
            gpus_idle=None if idle and idle.seconds >= SECOND else _gpus_idle(began.get(node), min(used[node])),
            pauses=tuple(_pauses(windows)),
        )
        for node, windows in sorted(counted.items())
    )


def _pauses(windows: Sequence[Window]) -> Iterator[Span]:
    """Between two windows of all ranks: from the end of the slowest rank's to the start of the first one's next."""
    numbers = sorted({window.index for window in windows})
    for before, after in pairwise(numbers):
        end = max(w.start + w.seconds for w in windows if w.index == before)
        start = min(w.start for w in windows if w.index == after)
        if start - end > PAUSE_S:
            yield Span(start=end, end=start)


def _idle(sampler: MonitorStart | None, started: float) -> Span | None:
    """From the sampler's beginning to the job's, on the node's clock; None where the job came first.

    The two clocks are held against each other by the sampler's first line, which is read a moment after it was written: the job's
    beginning comes out that moment too early, never too late.
    """
    if sampler is None:
        return None
    job = started - (sampler.received - sampler.t)
    return Span(start=sampler.t, end=job) if job > sampler.t else None


def _gpus_idle(sampler: MonitorStart | None, used: float) -> Span | None:
    """From the sampler's beginning until the first rank had imported its framework, before which no program of the suite uses a GPU."""
    return Span(start=sampler.t, end=used) if sampler and used > sampler.t else None
