"""The comparison of transports as a PNG: throughput of each with its interval, and what a step sent against what it had to.

Only usable rows are drawn, valid ones filled, degraded ones hollow; those left out are named under the plot. Links that are no real
wires are hatched, and their names say it.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from runner.core import units
from runner.report import canvas, transports
from runner.report.canvas import BLUE, INK, VERMILION
from runner.report.kept import kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runner.analysis.comparisons.transports import ComparedRow, Comparison

_NAME: Final = 26
"""Characters of a transport's name in a line."""


@kept
def transports_png(comparison: Comparison) -> bytes | None:
    """Draw the comparison as a PNG, 1440 pixels wide; None when no row has a throughput to draw."""
    return canvas.png(transports_figure(comparison))


def transports_figure(comparison: Comparison) -> Figure | None:
    """Draw the comparison; None when no row has a throughput to draw."""
    rows = [row for row in comparison.rows if row.row.usable and row.row.throughput is not None]
    if not rows:
        return None
    sent = any(row.sent_bytes is not None for row in rows)
    height = 2.4 + 0.62 * len(rows)
    figure = canvas.sheet(9, height, top=1 - 0.62 / height, gap=0.05, margins=(0.14, 0.08))
    panels = figure.subplots(1, 2 if sent else 1, sharey=True, width_ratios=[1.4, 1] if sent else [1], squeeze=False)[0]
    _throughput_panel(panels[0], comparison, rows)
    if sent:
        _bytes_panel(panels[1], rows)
    canvas.title(figure, f"{comparison.title}: transports", comparison.setting)
    _footer(figure, comparison)
    return figure


def _throughput_panel(axes: Axes, comparison: Comparison, rows: list[ComparedRow]) -> None:
    places = range(len(rows))
    _bars(axes, rows, [row.row.throughput or 0.0 for row in rows])
    for place, row in zip(places, rows, strict=True):
        value, ends = row.row.throughput or 0.0, row.row.throughput_ci95
        above = 0.0
        if ends:
            # The ends are rounded apart from the value, and an error bar cannot have a negative length.
            below, above = max(0.0, value - ends.low), max(0.0, ends.high - value)
            axes.errorbar([value], [place], xerr=[[below], [above]], fmt="none", ecolor=INK, elinewidth=1.4, capsize=4)
        words = units.figure(value, units.half_width(ends)).split(" ±")[0]
        ratio = f"  (×{units.figure(row.ratio, units.half_width(row.ratio_ci95))})" if row.ratio is not None else ""
        ratio += "" if ends else f", {units.counted(row.row.repeats)}"
        axes.annotate(
            words + ratio,
            (value + above, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=INK,
        )
    axes.set_xlim(0, 1.55 * max(row.row.throughput or 0.0 for row in rows))
    axes.set_yticks(places, [_name(row) for row in rows])
    axes.invert_yaxis()
    _dress(axes, f"throughput ({comparison.unit})")


def _bytes_panel(axes: Axes, rows: list[ComparedRow]) -> None:
    sent = [None if row.sent_bytes is None else row.sent_bytes / transports.MEGA for row in rows]
    _bars(axes, rows, sent)
    for place, (row, value) in enumerate(zip(rows, sent, strict=True)):
        rate = "" if row.reached_gbit is None else f"  ({units.figure(row.reached_gbit)} Gbit/s)"
        ends = (value or 0.0, *(one / transports.MEGA for one in row.needed_bytes))
        axes.annotate(
            units.figure(value) + rate,
            (max(ends), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=INK,
        )
        for needed in (one / transports.MEGA for one in row.needed_bytes):
            axes.plot([needed, needed], [place - 0.38, place + 0.38], color=VERMILION, linewidth=2)
    needed_most = max((one / transports.MEGA for row in rows for one in row.needed_bytes), default=0.0)
    axes.set_xlim(0, 2 * max(*(value or 0.0 for value in sent), needed_most, 1e-9))
    _dress(axes, "sent in a step (MB), by a GPU or a node")
    if needed_most:
        two = any(len(row.needed_bytes) > 1 for row in rows)
        said = "lines: what a tree and a ring need" if two else "line: what the algorithm needs"
        axes.set_title(said, fontsize=9, color=VERMILION, loc="left")


def _bars(axes: Axes, rows: Sequence[ComparedRow], values: Sequence[float | None]) -> None:
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        if value is None:
            continue
        hollow = row.row.status == "degraded"
        axes.barh(
            [place],
            [value],
            height=0.6,
            facecolor="white" if hollow else BLUE,
            edgecolor=BLUE if hollow else "white",
            linewidth=1.4,
            hatch="//" if "emulated" in row.transport else None,
        )


def _name(row: ComparedRow) -> str:
    idle = f", {transports.LIMITLESS}" if row.not_the_limit else ""
    return "\n".join([*textwrap.wrap(row.transport, _NAME), row.row.devices + idle])


def _dress(axes: Axes, label: str) -> None:
    canvas.dress(axes, label, along="x", fontsize=10.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")


def _footer(figure: Figure, comparison: Comparison) -> None:
    omitted = [
        f"not drawn: {row.transport}, {row.row.devices} {row.row.status} ({'; '.join(row.row.reasons)})"
        for row in comparison.rows
        if not row.row.usable
    ]
    said = f"bars: throughput with its {units.INTERVAL}, where it has one; ×: ratio to {comparison.first}; Gbit/s: what was reached"
    lines = [comparison.ran_on, said, *omitted]
    canvas.footer(figure, lines, characters=124)
