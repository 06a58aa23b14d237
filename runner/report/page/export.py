"""A figure as CSV: a line a point, full precision, an empty field where there is nothing."""

from __future__ import annotations

import csv
import io

from runner.report.page.model import Figure

COLUMNS = ("series", "kind", "x", "y", "ci95_low", "ci95_high", "degraded", "runs")


def to_csv(figure: Figure) -> str:
    """Columns: series, kind (measured, published, ideal), x, y, both ends of the interval, degraded, ids of the runs joined by a space.

    The first line names x and y with their units: `x: devices`.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    named = {"x": f"x: {figure.x}", "y": f"y: {figure.y}"}
    lines.writerow([named.get(name, name) for name in COLUMNS])
    for series in figure.series:
        for at, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            low = series.low[at] if series.low else None
            high = series.high[at] if series.high else None
            degraded = "yes" if series.degraded and series.degraded[at] else ""
            runs = " ".join(series.runs[at]) if series.runs else ""
            lines.writerow([series.name, series.kind, x, y, low, high, degraded, runs])
    return text.getvalue()
