"""The comparison of transports as a PNG: throughput of each with its interval, and what a step sent against what it had to.

Only usable rows are drawn, valid ones filled, degraded ones hollow; those left out are named under the plot. Links that are no real
wires are hatched, and their names say it. Colours are Okabe and Ito's, as in `plot`.
"""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Final

from runner.report import figures, transports

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runner.report.comparison import ComparedRow, Comparison

_BAR, _EXPECTED, _INK, _GRID, _QUIET = "#0072B2", "#D55E00", "#222222", "#E4E4E4", "#767676"
_NAME: Final = 26
"""Characters of a transport's name in a line."""


def transports_png(comparison: Comparison) -> bytes | None:
    """Draw the comparison as a PNG, 1440 pixels wide; None when no row has a throughput to draw."""
    figure = transports_figure(comparison)
    if figure is None:
        return None
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=160, metadata={"Software": None})  # same comparison, same bytes
    return png.getvalue()


def transports_figure(comparison: Comparison) -> Figure | None:
    """Draw the comparison; None when no row has a throughput to draw."""
    # The object interface alone: pyplot would look for a display and keep every figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (matplotlib takes half a second to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = [row for row in comparison.rows if row.row.usable and row.row.throughput is not None]
    if not rows:
        return None
    sent = any(row.sent_bytes is not None for row in rows)
    height = 2.4 + 0.62 * len(rows)
    figure = Figure(figsize=(9, height), facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.62 / height), w_pad=0.14, h_pad=0.08, wspace=0.05)
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2 if sent else 1, sharey=True, width_ratios=[1.5, 1] if sent else [1], squeeze=False)[0]
    _throughput_panel(panels[0], comparison, rows)
    if sent:
        _bytes_panel(panels[1], rows)
    figure.text(
        0.02, 1 - 0.14 / height, f"{comparison.title}: transports", fontsize=14, fontweight="bold", color=_INK, va="top"
    )
    figure.text(0.02, 1 - 0.42 / height, comparison.setting, fontsize=10.5, color=_INK, va="top")
    _footer(figure, comparison)
    return figure


def _throughput_panel(axes: Axes, comparison: Comparison, rows: list[ComparedRow]) -> None:
    places = range(len(rows))
    _bars(axes, rows, [row.row.throughput or 0.0 for row in rows])
    for place, row in zip(places, rows, strict=True):
        value, ends = row.row.throughput or 0.0, row.row.throughput_ci95
        above = 0.0
        if ends:
            # A percentile interval need not contain the point estimate; an error bar cannot have a negative length.
            below, above = max(0.0, value - ends.low), max(0.0, ends.high - value)
            axes.errorbar([value], [place], xerr=[[below], [above]], fmt="none", ecolor=_INK, elinewidth=1.4, capsize=4)
        words = figures.figure(value, figures.half_width(ends)).split(" ±")[0]
        ratio = f"  (×{figures.figure(row.ratio, figures.half_width(row.ratio_ci95))})" if row.ratio is not None else ""
        axes.annotate(
            words + ratio,
            (value + above, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=_INK,
        )
    axes.set_xlim(0, 1.55 * max(row.row.throughput or 0.0 for row in rows))
    axes.set_yticks(places, [_name(row) for row in rows])
    axes.invert_yaxis()
    _dress(axes, f"throughput ({comparison.unit})")


def _bytes_panel(axes: Axes, rows: list[ComparedRow]) -> None:
    sent = [(row.sent_bytes or 0.0) / transports.MEGA for row in rows]
    _bars(axes, rows, sent)
    for place, row in enumerate(rows):
        if row.sent_bytes is not None:
            axes.annotate(
                figures.figure(sent[place]),
                (sent[place], place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=9.5,
                color=_INK,
            )
        if row.expected_bytes is not None:
            needed = row.expected_bytes / transports.MEGA
            axes.plot([needed, needed], [place - 0.38, place + 0.38], color=_EXPECTED, linewidth=2)
    needed_most = max(((row.expected_bytes or 0.0) / transports.MEGA for row in rows), default=0.0)
    axes.set_xlim(0, 1.4 * max(*sent, needed_most, 1e-9))
    _dress(axes, "sent by a node in a step (MB)")
    if needed_most:
        axes.set_title("line: what the algorithm needs", fontsize=9, color=_EXPECTED, loc="left")


def _bars(axes: Axes, rows: list[ComparedRow], values: list[float]) -> None:
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        hollow = row.row.status == "degraded"
        axes.barh(
            [place],
            [value],
            height=0.6,
            facecolor="white" if hollow else _BAR,
            edgecolor=_BAR if hollow else "white",
            linewidth=1.4,
            hatch="//" if "emulated" in row.transport else None,
        )


def _name(row: ComparedRow) -> str:
    return "\n".join([*textwrap.wrap(row.transport, _NAME), row.row.devices])


def _dress(axes: Axes, label: str) -> None:
    axes.set_xlabel(label, fontsize=10.5, color=_INK)
    axes.grid(visible=True, axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.tick_params(labelsize=9.5, colors=_INK, length=0)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color(_QUIET)


def _footer(figure: Figure, comparison: Comparison) -> None:
    omitted = [
        f"not drawn: {row.transport}, {row.row.devices} {row.row.status} ({'; '.join(row.row.reasons)})"
        for row in comparison.rows
        if not row.row.usable
    ]
    said = "bars: throughput with its 95 % bootstrap interval; ×: ratio to " + comparison.first
    lines = [comparison.ground, said, *omitted]
    figure.supxlabel(
        "\n".join(part for line in lines for part in textwrap.wrap(line, 124)),
        x=0.02,
        ha="left",
        fontsize=8.5,
        color="#555555",
    )
