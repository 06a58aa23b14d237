"""Stretches of time: their union, what two sets of them share, and how many run at once. No word here on what they are.

All arrays are one-dimensional and of equal length; times in any one unit. Nothing loops over intervals in Python: half a million of
them take well under a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spans:
    """Intervals that are sorted and do not touch each other: what `union` gives."""

    start: Floats
    end: Floats

    @property
    def total(self) -> float:
        """Their length together."""
        return float((self.end - self.start).sum())


@dataclass(frozen=True)
class Overlap:
    """How many intervals run at once while any does: the mean weighted by time, the most, and how long at least two do."""

    mean: float
    most: int
    parallel: float


NOTHING = Spans(start=np.empty(0), end=np.empty(0))


def union(start: Floats, end: Floats) -> Spans:
    """The time that at least one interval covers; intervals that touch become one."""
    if not len(start):
        return NOTHING
    order = np.argsort(start, kind="stable")
    begins = start[order]
    # How far anything has reached up to each interval: an interval within an earlier one must not cut that short.
    reached = np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], begins[1:] > reached[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Spans(start=begins[opens], end=reached[closes])


def intersect(a: Spans, b: Spans) -> Spans:
    """The time that both cover."""
    # For each span of b, the stretch of spans of a that end after it begins and begin before it ends.
    low = np.searchsorted(a.end, b.start, side="right")
    high = np.searchsorted(a.start, b.end, side="left")
    counts = np.maximum(high - low, 0)
    of_b = np.repeat(np.arange(len(counts)), counts)
    of_a = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    return Spans(start=np.maximum(a.start[of_a], b.start[of_b]), end=np.minimum(a.end[of_a], b.end[of_b]))


def gaps(spans: Spans, within: Spans) -> Spans:
    """The time that `within` covers and `spans` does not."""
    outside = Spans(start=np.concatenate(([-np.inf], spans.end)), end=np.concatenate((spans.start, [np.inf])))
    return intersect(outside, within)


def overlap(start: Floats, end: Floats) -> Overlap | None:
    """How many intervals run at once; one that ends when another begins is not at once with it. None where none has a length."""
    lasting = end > start
    begins, ends = start[lasting], end[lasting]
    if not len(begins):
        return None
    times = np.concatenate((ends, begins))
    change = np.concatenate((np.full(len(ends), -1), np.ones(len(begins), dtype=np.int64)))
    order = np.argsort(times, kind="stable")  # ends stand before the begins of the same moment
    running = np.cumsum(change[order])
    lengths = np.diff(times[order])
    at_once = running[:-1]
    busy = float(lengths[at_once >= 1].sum())
    return Overlap(
        mean=float((lengths * at_once).sum()) / busy,
        most=int(running.max()),
        parallel=float(lengths[at_once > 1].sum()),
    )


def percent(part: float, whole: float) -> float:
    """A share as 0..100, 0 of nothing; sums of doubles may leave that by their last digit."""
    return min(100.0, 100 * part / whole) if whole else 0.0
