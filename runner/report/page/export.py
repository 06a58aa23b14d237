"""A figure as CSV: a line a point, full precision, an empty field where there is nothing."""

from __future__ import annotations

from runner.report.block import csv_text
from runner.report.page.model import Figure


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
