"""Figures as a PNG, for papers and slides: the same points as in the browser, drawn by matplotlib, the same bytes each time.

Drawing takes 0.2 s each, and a report of records on file draws hundreds, so pictures are cached. The key is a digest of everything a
picture depends on, including this file, so that a cached picture is never stale. Colours are Okabe and Ito's, distinguishable with any
colour vision (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import os
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from runner.core.cache import cache_dir
from runner.report.page import model
from runner.report.page.model import Figure, Series, tick_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
SERIES: Final = (BLUE, VERMILION, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colours of adjacent curves, in the order in which they are taken."""
INK: Final = "#222222"
QUIET: Final = "#767676"
GRID: Final = "#E4E4E4"
SMALL_PRINT: Final = "#555555"
DPI: Final = 160


def new_sheet(width: float, height: float, *, top: float) -> Sheet:
    """An empty sheet, `DPI` pixels per inch; its panels lay themselves out below a title, in the share `top` of its height."""
    # Only the object interface: pyplot would look for a display and keep every figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (matplotlib takes half a second to import)
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415

    figure = Sheet(figsize=(width, height), facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, 0, 1, top), w_pad=0.16, h_pad=0.1, wspace=0.06, hspace=0.06)
    FigureCanvasAgg(figure)
    return figure


def to_png(figure: Sheet) -> bytes:
    """The sheet as a PNG, the same bytes for the same sheet."""
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=DPI, metadata={"Software": None})
    return held.getvalue()


def headline(figure: Sheet, *lines: str) -> None:
    """The first line in bold, the others below it, in the part of the sheet that panels leave free."""
    height = figure.get_figheight()
    for number, line in enumerate(lines):
        style = {"fontsize": 14, "fontweight": "bold"} if number == 0 else {"fontsize": 10.5}
        below = 0.15 if number == 0 else 0.24 + 0.21 * number  # inches from the top
        figure.text(0.02, 1 - below / height, line, color=INK, va="top", **style)


def footer(figure: Sheet, lines: Iterable[str], *, characters: int) -> None:
    """Small print below the panels, wrapped at so many characters."""
    figure.supxlabel(
        "\n".join(part for line in lines for part in textwrap.wrap(line, characters)),
        x=0.02,
        ha="left",
        fontsize=8.5,
        color=SMALL_PRINT,
    )


def style_axes(axes: Axes, label: str, *, along: Literal["x", "y"], fontsize: float = 11) -> None:
    """Name the axis that values are read `along`, and keep only the frame's line that bars or curves stand on."""
    getattr(axes, f"set_{along}label")(label, fontsize=fontsize, color=INK)
    axes.grid(visible=True, axis=along, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=fontsize - 1, colors=INK, length=0)
    stands_on = "bottom" if along == "y" else "left"
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(side == stands_on)
    axes.spines[stands_on].set_color(QUIET)


CACHE_BYTES: Final = 256 * 2**20  # size of the cache


def prune() -> None:
    """Delete the least recently used pictures from the cache until it holds at most `CACHE_BYTES`."""
    with suppress(OSError):
        known = sorted(((path.stat(), path) for path in _cache().iterdir()), key=lambda one: -one[0].st_mtime_ns)
        size = 0
        for about, path in known:
            size += about.st_size
            if size > CACHE_BYTES:
                path.unlink(missing_ok=True)


def _cache() -> Path:
    return cache_dir() / "pictures"


@functools.cache
def _versions() -> str:
    """Digest of this file and `model.py`, and the libraries' versions: all that a picture depends on besides its values."""
    programs = (Path(one).read_bytes() for one in (__file__, model.__file__))
    return " ".join((hashlib.sha256(b"".join(programs)).hexdigest(), version("matplotlib"), version("pillow")))


_MARKERS: Final = "osD^vP*"
_MANY_CURVES: Final = 20  # with more curves the legend has a column of its own, in small print
_STYLES: Final = ("-", "--", "-.", ":")
_MARKS: Final[tuple[tuple[Literal["solid", "dashed"], str], ...]] = (("solid", VERMILION), ("dashed", "#000000"))
"""Line style and colour of reference marks across bars, if there are two of them."""
_MARK_REACH: Final = 0.42  # half the length of these marks; bars are 1 apart
_NAME_WIDTH: Final = 30  # characters of a name per line
_PERCENT_END: Final = 105
"""Upper end of a percent axis, so that 100 is not on its edge; a larger value extends it."""
_MOST_TICKS: Final = 12  # up to this many integers get a tick each
_DENSE: Final = 60  # curves with more points have no markers


def draw(
    *panels: Figure,
    title: str = "",
    lead: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
    side_by_side: bool = False,
) -> Sheet | None:
    """Draw figures on one sheet, 8 inches wide, 10.5 with a legend, 12 side by side and 14 with many curves; None if no figure has a value.

    Args:
        panels: from top to bottom, or from left to right; side by side, only the first names its bars.
        title: of the sheet; empty for that of the first figure.
        lead: lines below the title.
        lines: what ran on what, in the small print.
        side_by_side: whether the panels are in one row.
    """
    shown = [figure for figure in panels if any(value is not None for series in figure.series for value in series.y)]
    if not shown:
        return None
    wide_legend = len(shown[0].series) > _MANY_CURVES
    legends = [
        len(figure.series) > 1 and not (number and _curves(figure) == _curves(shown[0]))
        for number, figure in enumerate(shown)
    ]
    heights = [
        max(_panel_height(figure), 0.25 * len(figure.series) * legend * (not wide_legend))
        for figure, legend in zip(shown, legends, strict=True)
    ]
    height = 2.0 + 0.2 * len(lead) + (max(heights) if side_by_side else sum(heights))
    rows, columns = (1, len(shown)) if side_by_side else (len(shown), 1)
    if wide_legend:
        height = max(height, 1.6 + 0.165 * len(shown[0].series))
    width = 14 if wide_legend else 1.5 * 8 if side_by_side else 10.5 if any(legends) else 8
    sheet = new_sheet(width, height, top=1 - (0.55 + 0.2 * len(lead)) / height)
    every = sheet.subplots(rows, columns, squeeze=False).flat
    names = list(dict.fromkeys(tick_label(value) for figure in shown for series in figure.series for value in series.x))
    for number, (axes, figure, legend) in enumerate(zip(every, shown, legends, strict=True)):
        if figure.shape == "lines":
            _lines(axes, figure)
        else:
            _bars(axes, figure, names)
        if legend and wide_legend:
            sheet.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=7.5)
        elif legend:
            # Outside of the panel, because curves leave no room in it.
            corner, at = ("lower right", (1, 1)) if side_by_side else ("upper left", (1.01, 1))
            axes.legend(loc=corner, bbox_to_anchor=at, borderaxespad=0, frameon=False, fontsize=9.5)
        if side_by_side and number:
            axes.tick_params(labelleft=False)
    first, *more = textwrap.wrap(title or shown[0].title, 74)
    headline(sheet, first, *more, *lead)
    bars_shown = dict.fromkeys(f"error bars: {figure.interval}" for figure in shown if figure.interval)
    notes = dict.fromkeys(note for figure in shown for note in figure.notes)
    footer(sheet, [*bars_shown, *notes, *lines], characters=int(14 * width))
    return sheet


def png(*panels: Figure, **how: Any) -> bytes | None:
    """The sheet of `draw` as a PNG, from the cache if these values were drawn before; None if there is nothing to draw."""
    key = f"{_versions()} {[panel.model_dump_json() for panel in panels]} {how!r}"
    path = _cache() / f"{hashlib.sha256(key.encode()).hexdigest()}.png"
    with suppress(OSError):
        found = path.read_bytes()
        os.utime(path)  # so that `prune` keeps what is in use
        return found
    sheet = draw(*panels, **how)
    if sheet is None:
        return None
    made = to_png(sheet)
    with suppress(OSError):  # a picture that can't be cached is drawn again
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(made)
        draft.replace(path)
    return made


def _panel_height(figure: Figure) -> float:
    """The approximate height of the panel in inches; lying bars need more, the more there are."""
    if figure.shape != "lying":
        return 3.4
    names = {value for series in figure.series for value in series.x}
    barred = sum(series.kind != "ideal" for series in figure.series)
    return max(1.2, 0.5 * len(names) * (1 + 0.4 * (barred - 1)))


def _style(figure: Figure, series: Series) -> tuple[str, str, str]:
    """Colour, marker and line; published and measured series of the same name have the same colour, as in the browser."""
    number = _curves(figure).index(series.name)
    if series.kind == "published":
        return SERIES[number % len(SERIES)], "D", ":"
    # After the last colour, start again with other markers, then with other lines.
    again = number // len(SERIES)
    marker = _MARKERS[(number + again) % len(_MARKERS)]
    return SERIES[number % len(SERIES)], marker, _STYLES[again // len(_MARKERS) % len(_STYLES)]


def _curves(figure: Figure) -> list[str]:
    return list(dict.fromkeys(one.name for one in figure.series if one.kind != "ideal"))


def _label(figure: Figure, series: Series) -> str:
    both = any(one.kind == "published" for one in figure.series)
    words = f"{series.name}, {series.kind}" if both and series.name not in {"published", "measured"} else series.name
    return words if len(figure.series) > _MANY_CURVES else textwrap.fill(words, _NAME_WIDTH)


def _error_bars(series: Series, at: list[int]) -> list[list[float]] | None:
    """The lengths of the error bars below and above each point."""
    if not series.low or not series.high:
        return None
    below, above = [], []
    for one in at:
        # The ends are rounded separately from the value, and an error bar cannot have a negative length.
        value, low, high = series.y[one] or 0.0, series.low[one], series.high[one]
        below.append(0.0 if low is None else max(0.0, value - low))
        above.append(0.0 if high is None else max(0.0, high - value))
    return [below, above]


def _hollow(series: Series, at: int) -> bool:
    return bool(series.degraded and series.degraded[at])


def _lines(axes: Axes, figure: Figure) -> None:
    for start, end in figure.shade:
        axes.axvspan(start, end, color=GRID, zorder=0)
    for series in figure.series:
        x = [float(value) for value in series.x if not isinstance(value, str)]
        y = [float("nan") if value is None else value for value in series.y]
        if series.kind == "ideal":
            axes.plot(x, y, "--", color=QUIET, linewidth=1.5, label=series.name)
            continue
        colour, marker, line = _style(figure, series)
        dense = len(x) > _DENSE
        published = series.kind == "published"
        style: dict[str, Any] = {"linestyle": line, "linewidth": 1.2 if dense else 1.6}
        style |= {"marker": "" if dense else marker, "markersize": 7, "mfc": "white" if published else colour}
        axes.plot(x, y, color=colour, label=_label(figure, series), **style)
        at = [number for number, value in enumerate(series.y) if value is not None]
        hollow = [number for number in at if _hollow(series, number)]
        if hollow and not dense:
            axes.plot([x[n] for n in hollow], [y[n] for n in hollow], marker, markersize=7, mfc="white", mec=colour)
        reach = _error_bars(series, at)
        if reach:
            axes.errorbar([x[n] for n in at], [y[n] for n in at], yerr=reach, fmt="none", ecolor=colour, capsize=4)
        for order, number in enumerate(at if series.labels else ()):
            below = reach[0][order] if reach else 0.0
            _annotate(axes, series.labels[number], (x[number], y[number] - below), offset=(0, -9))
    _scale(axes, figure)
    axes.set_xlabel(figure.x, fontsize=11, color=INK)
    style_axes(axes, figure.y, along="y")


def _scale(axes: Axes, figure: Figure) -> None:
    """Set the ticks and the ends of both axes."""
    ticks = sorted({float(value) for one in figure.series if one.kind != "ideal" for value in one.x})
    if figure.log:
        axes.set_xscale("log", base=2)
        if len(ticks) > _MOST_TICKS:
            ticks = [2.0**power for power in range(int(ticks[-1]).bit_length())]
    if figure.log or (len(ticks) <= _MOST_TICKS and all(tick.is_integer() for tick in ticks)):
        axes.set_xticks(ticks, [tick_label(tick) for tick in ticks])
        axes.minorticks_off()
    efficiency = figure.y.startswith("efficiency")
    if efficiency:
        axes.axhline(100, linestyle="--", color=QUIET, linewidth=1.5)
    if efficiency and not figure.percent:
        return  # a difference of one percent must remain visible
    if figure.log and any(series.kind == "ideal" for series in figure.series):
        axes.set_yscale("log", base=2)  # keeps the ideal a straight line
        axes.yaxis.set_major_formatter(lambda value, _: tick_label(value))
    else:
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))
        if figure.percent and axes.get_ylim()[1] <= _PERCENT_END:
            axes.set_ylim(0, _PERCENT_END)


def _annotate(axes: Axes, words: str, at: tuple[float, float], *, offset: tuple[int, int]) -> None:
    """Write a value below its point, or after the end of its bar."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    axes.annotate(
        words,
        at,
        xytext=offset,
        textcoords="offset points",
        ha="left" if offset[0] else "center",
        va="center" if offset[0] else "top",
        fontsize=9.5,
        color=INK,
        path_effects=[withStroke(linewidth=3, foreground="white")],  # readable across a line
    )


def _bars(axes: Axes, figure: Figure, names: Sequence[str]) -> None:
    """Bars of each series, side by side for names that they share; an ideal series is a mark across the bars."""
    lying = figure.shape == "lying"
    marked: dict[int, float] = {}  # by position, how far the marks reach
    needed = (series for series in figure.series if series.kind == "ideal")
    for series, (style, colour) in zip(needed, itertools.cycle(_MARKS), strict=False):
        known = {names.index(tick_label(x)): y for x, y in zip(series.x, series.y, strict=True) if y is not None}
        marked |= {at: max(value, marked.get(at, 0.0)) for at, value in known.items()}
        ends = [at - _MARK_REACH for at in known], [at + _MARK_REACH for at in known]
        across = axes.vlines if lying else axes.hlines
        across(list(known.values()), *ends, colour, style, linewidth=2, label=series.name, zorder=3)
    barred = [series for series in figure.series if series.kind != "ideal"]
    width = 0.7 / len(barred)
    for number, series in enumerate(barred):
        colour, *_ = _style(figure, series)
        at = [one for one, value in enumerate(series.y) if value is not None]
        places = [names.index(tick_label(series.x[one])) + width * (number - (len(barred) - 1) / 2) for one in at]
        lengths = [series.y[one] or 0.0 for one in at]
        fills = ["white" if _hollow(series, one) else colour for one in at]
        hatches = [
            "//" if "emulated" in tick_label(series.x[one]) else ".." if series.kind == "published" else ""
            for one in at
        ]
        # Hatches are drawn in the edge colour.
        edges = ["white" if hatch and fill != "white" else colour for fill, hatch in zip(fills, hatches, strict=True)]
        draw_bars = axes.barh if lying else axes.bar
        look: dict[str, Any] = {"color": fills, "edgecolor": edges, "linewidth": 1.2, "hatch": hatches}
        draw_bars(places, lengths, 0.92 * width, label=_label(figure, series), **look)
        reach = _error_bars(series, at)
        if reach:
            along, beside = ("x", "y") if lying else ("y", "x")
            where: dict[str, Any] = {along: lengths, beside: places, f"{along}err": reach}
            axes.errorbar(**where, fmt="none", ecolor=INK, elinewidth=1.3, capsize=4)
        for order, one in enumerate(at if lying and series.labels else ()):
            bar = lengths[order] + (reach[1][order] if reach else 0.0)
            end = max(bar, marked.get(names.index(tick_label(series.x[one])), 0.0))
            _annotate(axes, series.labels[one], (end, places[order]), offset=(6, 0))
    ticks = [textwrap.fill(name, _NAME_WIDTH if lying else 16) for name in names]
    if lying:
        axes.set_yticks(range(len(names)), ticks)
        axes.set_ylim(len(names) - 0.5, -0.5)
        if any(series.labels for series in figure.series):
            axes.set_xlim(0, 1.5 * axes.get_xlim()[1])  # room for the labels
        style_axes(axes, figure.y, along="x", fontsize=10.5)
    else:
        axes.set_xticks(range(len(names)), ticks)
        axes.set_xlabel(figure.x, fontsize=11, color=INK)
        style_axes(axes, figure.y, along="y")
