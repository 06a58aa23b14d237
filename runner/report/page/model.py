"""The values that the page is made from: figures as columns of numbers, tables as text, and blocks of both.

Nothing here knows how a figure is drawn: `assets/figure.js` and `picture.py` draw the same `Figure`. As text it is a CSV, one point a line
in full precision, or a paragraph, for screen readers and for pasting.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from pydantic import field_validator, model_validator

from runner.core import units
from runner.core.frozen import Frozen
from runner.core.measurement import FEWEST_RUNS, Interval
from runner.core.units import INTERVAL, interval_ends
from runner.report.table import Table, csv_text

Row = TypeVar("Row")
SeriesKind = Literal["measured", "published", "ideal"]
Position = float | str  # a point's position along x: a number, or the name of a bar


class Series(Frozen):
    """One curve, or one set of bars.

    Attributes:
        kind: `measured` here, `published` by others, or `ideal`: a reference line or mark.
        x, y: (points,) a y of None is a gap in the curve. Bars with equal names get numbers, because a browser would draw them on top of
            each other, as their sum.
        low, high: (points,) ends of the 95 % interval; empty if no point of the series has one.
        degraded: (points,) drawn hollow; may be empty if no point is.
        runs: (points,) ids of the runs behind each point; empty if nothing is measured.
        labels: (points,) what a PNG prints next to each point; empty for no labels.
    """

    name: str
    kind: SeriesKind = "measured"
    x: tuple[Position, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    degraded: tuple[bool, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()
    labels: tuple[str, ...] = ()

    @field_validator("x")
    @classmethod
    def _number_equal_bar_names(cls, x: tuple[Position, ...]) -> tuple[Position, ...]:
        if not any(isinstance(value, str) for value in x):
            return x
        found: list[Position] = []
        for value in x:
            more = (f"{value} ({number})" for number in itertools.count(2))
            found.append(
                value if isinstance(value, float) or value not in found else next(n for n in more if n not in found)
            )
        return tuple(found)

    @model_validator(mode="after")
    def _check_column_lengths(self) -> Series:
        for name in ("y", "low", "high", "degraded", "runs", "labels"):
            column = getattr(self, name)
            if len(column) != len(self.x) and (column or name == "y"):
                raise ValueError(f"{self.name}: {name} has {len(column)} entries for {len(self.x)} points")
        return self


def series_of(
    rows: Sequence[Row],
    *,
    x: Callable[[Row], Position],
    y: Callable[[Row], float | None],
    interval: Callable[[Row], Interval | None] = lambda _: None,
    degraded: Callable[[Row], bool] = lambda _: False,
    runs: Callable[[Row], tuple[str, ...]] | None,
    label: Callable[[Row], str] | None = None,
    name: str = "measured",
    kind: SeriesKind = "measured",
) -> Series:
    """A series with one point per row."""
    intervals = list(map(interval, rows))
    low, high = zip(*map(interval_ends, intervals), strict=True) if any(intervals) else ((), ())
    return Series(
        name=name,
        kind=kind,
        x=tuple(map(x, rows)),
        y=tuple(map(y, rows)),
        low=low,
        high=high,
        degraded=tuple(map(degraded, rows)),
        runs=tuple(map(runs, rows)) if runs else (),
        labels=tuple(map(label, rows)) if label else (),
    )


def error_bars(*series: Series) -> str:
    """The text of `Figure.interval`: what error bars show, or why there are none; empty if nothing is measured."""
    if all(one.kind != "measured" for one in series):
        return ""
    if any(one.low for one in series):
        return f"{INTERVAL}, where there are {FEWEST_RUNS}"
    return f"none from fewer than {FEWEST_RUNS} runs"


def make_distinct(titles: Sequence[str], *facts: Sequence[Sequence[str]]) -> list[str]:
    """Make equal titles distinct by appending facts that not all of them share; each further list of facts is for titles that are still equal."""
    found = list(titles)
    for column in facts:
        alike: dict[str, list[set[str]]] = {}
        for title, own in zip(found, column, strict=True):
            alike.setdefault(title, []).append(set(own))
        shared = {title: set.intersection(*own) for title, own in alike.items()}
        found = [
            ", ".join((title, *(fact for fact in own if fact and fact not in shared[title])))
            for title, own in zip(found, column, strict=True)
        ]
    return found


def anchor(*words: str) -> str:
    """An id within the page, of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


class Figure(Frozen):
    """One figure.

    Attributes:
        name: the stem of its files, unique on a page.
        title: what it shows.
        shape: `lines` over numbers, vertical `bars` over names, or `lying` (horizontal) bars, for long names.
        x, y: axis titles with units; y is the axis of the values, even for lying bars.
        log: whether x is on a log2 scale; so is y if there is an ideal line.
        percent: whether y ends at 100.
        shade: x ranges of the measured windows; empty unless x is time.
        interval: what the error bars show; empty if this kind of figure has none.
        notes: what is left out, and why.
    """

    name: str
    title: str
    shape: Literal["lines", "bars", "lying"] = "lines"
    x: str
    y: str
    log: bool = False
    percent: bool = False
    shade: tuple[tuple[float, float], ...] = ()
    series: tuple[Series, ...]
    interval: str = ""
    notes: tuple[str, ...] = ()


class Block(Frozen):
    """One unit of the page: a matrix, a comparison, or a study.

    Attributes:
        anchor: its id within the page.
        title, lead: what it is, and its result in one line: all that is visible until it is opened.
        lines: what ran where.
        runs: ids of the runs that it is made from.
        stem: prefix of its own reports, which are next to the run directories.
        files: links to those of these reports that exist, relative to the page.
        elsewhere: whether it ran on other hardware than the latest run.
        empty: what to run if it has no figure.
    """

    anchor: str
    title: str
    lead: str
    lines: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    stem: str = ""
    files: tuple[str, ...] = ()
    elsewhere: bool = False
    empty: str = ""


class Section(Frozen):
    """A chapter of the page."""

    anchor: str
    title: str
    about: str
    blocks: tuple[Block, ...]


class Fact(Frozen):
    """One known fact about a run; a command gets a copy button."""

    name: str
    value: str
    command: bool = False


class RunLine(Frozen):
    """One run: its `cells` as in `runs.COLUMNS`, and the links, relative to the page, to its record and to its directory."""

    run_id: str
    cells: tuple[str, ...]
    record: str
    folder: str
    facts: tuple[Fact, ...]
    reasons: tuple[str, ...]
    profiled: bool


class Page(Frozen):
    """The whole page.

    Attributes:
        made: how many records it is drawn from and by which version; unless the page is to be committed, also when.
        counts: (label, number) pairs.
        latest: the newest measurement; None if nothing was measured.
        missing: chapters without a block, each with the command that measures it.
    """

    title: str
    made: str
    counts: tuple[tuple[str, int], ...]
    latest: Block | None
    overview: Block
    sections: tuple[Section, ...]
    missing: tuple[tuple[str, str], ...]
    runs: tuple[RunLine, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in the order of the page, each once."""
        return tuple({figure.name: figure for block in self.blocks for figure in block.figures}.values())

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in the order of the page."""
        found = (block for section in self.sections for block in section.blocks)
        return (*([self.latest] if self.latest else []), self.overview, *found)


def to_csv(figure: Figure) -> str:
    """Columns: series, kind (measured, published, ideal), x, y, both ends of the interval, degraded, run ids joined by a space.

    The header names x and y with their units: `x: devices`.
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


FEW_POINTS: Final = 8  # points of a curve that are listed one by one
FEW_BARS: Final = 16  # bars that are listed one by one: a name cannot be inferred from its neighbours


def prose(figure: Figure) -> str:
    """The figure as a paragraph: its axes, then each series."""
    sentences = [f"{figure.y[0].upper()}{figure.y[1:]} by {figure.x}."]
    sentences += [f"{_series(series)}." for series in figure.series if series.kind != "ideal"]
    return " ".join(sentences)


def tick_label(value: Position) -> str:
    """A point's position along x, as an axis label."""
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
    if len(known) <= (FEW_BARS if isinstance(series.x[0], str) else FEW_POINTS):
        return f"{who}: " + "; ".join(_point_text(series, at) for at in known)
    return f"{who}: {_summary(series, known)}"


def _point_text(series: Series, at: int) -> str:
    """A value and its position: `name value`, or `value at number`."""
    value, where = value_at(series, at), series.x[at]
    return f"{where} {value}" if isinstance(where, str) else f"{value} at {tick_label(where)}"


def _summary(series: Series, known: Sequence[int]) -> str:
    def value(at: int) -> float:
        return series.y[at] or 0.0

    lowest, highest = min(known, key=value), max(known, key=value)
    return f"{len(known)} values, first {_point_text(series, known[0])}, last {_point_text(series, known[-1])}, smallest {_point_text(series, lowest)}, largest {_point_text(series, highest)}"
