"""The scaling curve as a PNG: throughput against the ideal line, and efficiency below it.

Only usable rows are drawn: valid ones filled, degraded ones hollow. Those left out are named under the plot, because a
curve that silently stops reads like one that was never taken further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.core import units
from runner.report import canvas
from runner.report.canvas import BLUE, INK, QUIET
from runner.report.kept import kept

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runner.analysis.summary import Row, Summary
    from runner.core.measurement import Interval

_LINEAR_UP_TO = 8
"""Largest scale drawn on linear axes; beyond it powers of two would crowd at the origin."""


@dataclass(frozen=True)
class _Point:
    scale: int
    value: float
    below: float
    above: float
    hollow: bool


@kept
def scaling_png(summary: Summary) -> bytes | None:
    """Draw the scaling curve as a PNG of 1280 x 1184 pixels; None when it would not be one."""
    return canvas.png(scaling_figure(summary))


def scaling_figure(summary: Summary) -> Figure | None:
    """Draw the scaling curve; None when fewer than two rows have a throughput: a single point is in the table."""
    rows = [row for row in summary.rows if row.usable and row.throughput is not None]
    if len(rows) < 2:  # noqa: PLR2004
        return None
    figure = canvas.sheet(8, 7.4, top=0.89 if summary.wires else 0.92, margins=(0.18, 0.1))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2.1, 1])
    _throughput_panel(top, summary, rows)
    _efficiency_panel(bottom, rows)
    figure.align_ylabels()
    canvas.title(figure, summary.title, summary.setting, *([summary.wires] if summary.wires else []))
    _footer(figure, summary)
    return figure


def _throughput_panel(axes: Axes, summary: Summary, rows: list[Row]) -> None:
    from matplotlib.ticker import LogLocator  # noqa: PLC0415

    points = _points(rows, lambda row: row.throughput, lambda row: row.throughput_ci95)
    base = next((row for row in rows if row.scale == 1), None)
    scales = [point.scale for point in points]
    if base is not None and base.throughput is not None and max(scales) > 1:
        ends = [1, max(scales)]
        axes.plot(
            ends,
            [base.throughput * n for n in ends],
            "--",
            color=QUIET,
            linewidth=1.5,
            label="ideal: n times one device",
        )
    _draw(axes, points, label=f"measured, {units.INTERVAL}" if any(row.throughput_ci95 for row in rows) else "measured")
    _name_values(axes, points)
    if max(scales) > _LINEAR_UP_TO:
        axes.set_yscale("log")
        axes.set_ylim(bottom=min(point.value for point in points) / 1.8)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.minorticks_off()
    else:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.03)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    canvas.dress(axes, f"throughput ({summary.rate_unit})", along="y")
    axes.legend(loc="upper left", frameon=False, fontsize=10)


def _efficiency_panel(axes: Axes, rows: list[Row]) -> None:
    points = _points(rows, lambda row: units.percent(row.efficiency), lambda row: row.efficiency_ci95, factor=100)
    axes.axhline(100, linestyle="--", color=QUIET, linewidth=1.5)
    _draw(axes, points, label=None)
    _name_values(axes, points, suffix=" %")
    highest = max([100.0, *(point.value + point.above for point in points)])
    axes.set_ylim(0, highest * 1.12)
    canvas.dress(axes, "efficiency (%)", along="y")
    device = rows[0].device_name
    axes.set_xlabel(f"{device}s", fontsize=11, color=INK)
    scales = sorted({row.scale for row in rows})
    if scales[-1] > _LINEAR_UP_TO:
        axes.set_xscale("log", base=2)
        axes.set_xlim(scales[0] / 1.35, scales[-1] * 1.35)
    else:
        axes.set_xlim(0, scales[-1] * 1.12 if len(scales) > 1 else scales[-1] * 2)
    axes.set_xticks(scales, [str(scale) for scale in scales])
    axes.minorticks_off()


def _points(
    rows: list[Row],
    value: Callable[[Row], float | None],
    interval: Callable[[Row], Interval | None],
    *,
    factor: float = 1,
) -> list[_Point]:
    points = []
    for row in sorted(rows, key=lambda row: row.scale):
        at = value(row)
        if at is None:
            continue
        ends = interval(row)
        # The ends are rounded apart from the value, and an error bar cannot have a negative length.
        below = max(0.0, at - factor * ends.low) if ends else 0.0
        above = max(0.0, factor * ends.high - at) if ends else 0.0
        points.append(_Point(row.scale, at, below, above, hollow=row.status == "degraded"))
    return points


def _draw(axes: Axes, points: list[_Point], *, label: str | None) -> None:
    axes.plot([p.scale for p in points], [p.value for p in points], color=BLUE, linewidth=1.5, zorder=2)
    for hollow, name in ((False, label), (True, label and "measured, degraded")):
        some = [point for point in points if point.hollow is hollow]
        if some:
            axes.errorbar(
                [p.scale for p in some],
                [p.value for p in some],
                yerr=[[p.below for p in some], [p.above for p in some]],
                fmt="o",
                color=BLUE,
                markerfacecolor="white" if hollow else BLUE,
                markersize=8,
                markeredgewidth=1.8,
                elinewidth=1.6,
                capsize=5,
                capthick=1.6,
                label=name,
                zorder=3,
            )


def _name_values(axes: Axes, points: list[_Point], *, suffix: str = "") -> None:
    """Write each value below its point, with the digits that its interval supports."""
    for point in points:
        text = units.figure(point.value, (point.below + point.above) / 2 or None).split(" ±")[0]
        axes.annotate(
            text + suffix,
            (point.scale, point.value - point.below),
            xytext=(0, -9),
            textcoords="offset points",
            ha="center",
            va="top",
            color=BLUE,
            fontsize=10,
            fontweight="bold",
            path_effects=canvas.halo(),
            zorder=4,
        )


def _bars(summary: Summary) -> str:
    """What error bars are, and how many runs each scale has."""
    counts = sorted({row.repeats for row in summary.rows if row.usable})
    bars = f"bars: {units.INTERVAL}; " if any(row.throughput_ci95 for row in summary.rows) else ""
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{bars}{fewest}{units.counted(counts[-1])} of each scale"


def _footer(figure: Figure, summary: Summary) -> None:
    omitted = [
        f"not drawn: {row.devices} {row.status} ({'; '.join(row.reasons)})" for row in summary.rows if not row.usable
    ]
    lines = [
        summary.ran_on,
        _bars(summary),
        *omitted,
    ]
    canvas.footer(figure, lines, characters=112)
