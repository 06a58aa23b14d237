"""A figure in words, for those who hear it and those who paste: every value where they are few, the ends and extremes where they are many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.report import figures
from runner.report.page.model import Figure, Place, Series

FEW: Final = 8
"""Points of a series that are told one by one."""


def told(figure: Figure) -> str:
    """The figure in one paragraph: what it is of, then each series."""
    sentences = [f"{figure.title}: {figure.y} by {figure.x}."]
    sentences += [f"{_series(series)}." for series in figure.series if series.kind != "ideal"]
    return " ".join(sentences)


def place(value: Place) -> str:
    """Where a point stands, as it is written beside an axis."""
    return value if isinstance(value, str) else f"{value:,.6g}"


def value_at(series: Series, at: int) -> str:
    """A value with its interval."""
    ends = (series.low[at], series.high[at]) if series.low and series.high else (None, None)
    low, high = ends
    half = None if low is None or high is None else (high - low) / 2
    return figures.figure(series.y[at], half)


def _series(series: Series) -> str:
    known = [at for at, value in enumerate(series.y) if value is not None]
    who = f"{series.name} (published)" if series.kind == "published" else series.name
    if not known:
        return f"{who}: no value"
    if len(known) <= FEW:
        return f"{who}: " + ", ".join(f"{value_at(series, at)} at {place(series.x[at])}" for at in known)
    return f"{who}: {_many(series, known)}"


def _many(series: Series, known: Sequence[int]) -> str:
    def value(at: int) -> float:
        return series.y[at] or 0.0

    def where(at: int) -> str:
        return f"{value_at(series, at)} at {place(series.x[at])}"

    lowest, highest = min(known, key=value), max(known, key=value)
    return f"{len(known)} values, first {where(known[0])}, last {where(known[-1])}, smallest {where(lowest)}, largest {where(highest)}"
