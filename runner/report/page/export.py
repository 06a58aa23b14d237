"""A figure as text: as CSV, a line a point in full precision, and in words, for those who hear it and those who paste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.core import units
from runner.report.page.model import Figure, Place, Series
from runner.report.table import csv_text


def to_csv(figure: Figure) -> str:
    """Columns: series, kind (measured, published, ideal), x, y, both ends of the interval, degraded, ids of the runs joined by a space.

    The first line names x and y with their units: `x: devices`.
    """
    x_name, y_name = f"x: {figure.x}", f"y: {figure.y}"
    rows = [
        {
            "series": series.name,
            "kind": series.kind,
            x_name: x,
            y_name: y,
            "ci95_low": series.low[at] if series.low else None,
            "ci95_high": series.high[at] if series.high else None,
            "degraded": "yes" if series.degraded and series.degraded[at] else "",
            "runs": " ".join(series.runs[at]) if series.runs else "",
        }
        for series in figure.series
        for at, (x, y) in enumerate(zip(series.x, series.y, strict=True))
    ]
    return csv_text(rows, columns=("series", "kind", x_name, y_name, "ci95_low", "ci95_high", "degraded", "runs"))


FEW: Final = 8
"""Points of a curve that are told one by one."""
NAMED: Final = 16
"""Bars that are, as nobody can see a name between two others."""


def told(figure: Figure) -> str:
    """The figure in one paragraph: what it is of, then each series."""
    sentences = [f"{figure.y[0].upper()}{figure.y[1:]} by {figure.x}."]
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
    return units.figure(series.y[at], half)


def _series(series: Series) -> str:
    known = [at for at, value in enumerate(series.y) if value is not None]
    says_so = series.name == "published"
    who = f"{series.name} (published)" if series.kind == "published" and not says_so else series.name
    if not known:
        return f"{who}: no value"
    if len(known) <= (NAMED if isinstance(series.x[0], str) else FEW):
        return f"{who}: " + "; ".join(_at(series, at) for at in known)
    return f"{who}: {_many(series, known)}"


def _at(series: Series, at: int) -> str:
    """A value and its place: a name stands before it, a number behind."""
    value, where = value_at(series, at), series.x[at]
    return f"{where} {value}" if isinstance(where, str) else f"{value} at {place(where)}"


def _many(series: Series, known: Sequence[int]) -> str:
    def value(at: int) -> float:
        return series.y[at] or 0.0

    lowest, highest = min(known, key=value), max(known, key=value)
    return f"{len(known)} values, first {_at(series, known[0])}, last {_at(series, known[-1])}, smallest {_at(series, lowest)}, largest {_at(series, highest)}"
