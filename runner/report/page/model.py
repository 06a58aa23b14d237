"""What the page is made from: figures as columns of numbers, tables as text, and blocks of both.

Nothing here knows how a browser draws: `assets/figure.js` and `picture.py` draw the same `Figure`. As text it is a CSV, a line a point in full
precision, and words, for those who hear it and those who paste.
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
from runner.core.units import INTERVAL, ends
from runner.report.table import Table, csv_text

Row = TypeVar("Row")
SeriesKind = Literal["measured", "published", "ideal"]
Place = float | str  # where a point stands: a number, or the name of a bar


class Series(Frozen):
    """One curve, or one set of bars.

    Attributes:
        kind: `measured` here, `published` by others, or `ideal`: what the figure is held against.
        x, y: (points,) a y that is None is a hole in the curve. Names of bars that are equal get a number each: a browser draws such
            bars on top of each other, as their sum.
        low, high: (points,) ends of the 95 % interval; empty where none of the series has one.
        degraded: (points,) drawn hollow; empty where no point is.
        runs: (points,) ids of the runs behind each; empty for what is not measured.
        labels: (points,) what a PNG says beside each; empty for nothing.
    """

    name: str
    kind: SeriesKind = "measured"
    x: tuple[Place, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    degraded: tuple[bool, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()
    labels: tuple[str, ...] = ()

    @field_validator("x")
    @classmethod
    def _bars_have_names_of_their_own(cls, x: tuple[Place, ...]) -> tuple[Place, ...]:
        if not any(isinstance(place, str) for place in x):
            return x
        found: list[Place] = []
        for place in x:
            more = (f"{place} ({number})" for number in itertools.count(2))
            found.append(
                place if isinstance(place, float) or place not in found else next(n for n in more if n not in found)
            )
        return tuple(found)

    @model_validator(mode="after")
    def _columns_are_of_one_length(self) -> Series:
        for name in ("y", "low", "high", "degraded", "runs", "labels"):
            column = getattr(self, name)
            if len(column) != len(self.x) and (column or name == "y"):
                raise ValueError(f"{self.name}: {name} has {len(column)} entries for {len(self.x)} points")
        return self


def series_of(
    rows: Sequence[Row],
    *,
    x: Callable[[Row], Place],
    y: Callable[[Row], float | None],
    interval: Callable[[Row], Interval | None] = lambda _: None,
    degraded: Callable[[Row], bool] = lambda _: False,
    runs: Callable[[Row], tuple[str, ...]] | None,
    label: Callable[[Row], str] | None = None,
    name: str = "measured",
    kind: SeriesKind = "measured",
) -> Series:
    """A series with a point for each of some rows."""
    intervals = list(map(interval, rows))
    low, high = zip(*map(ends, intervals), strict=True) if any(intervals) else ((), ())
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
    """What error bars are, for `Figure.interval`, or why there are none; empty where nothing is measured."""
    if all(one.kind != "measured" for one in series):
        return ""
    if any(one.low for one in series):
        return f"{INTERVAL}, where there are {FEWEST_RUNS}"
    return f"none from fewer than {FEWEST_RUNS} runs"


def apart(titles: Sequence[str], *facts: Sequence[Sequence[str]]) -> list[str]:
    """Titles, those that are alike each with the facts that not all of these have; of several lists a later one parts what is alike still."""
    found = list(titles)
    for told in facts:
        alike: dict[str, list[set[str]]] = {}
        for title, own in zip(found, told, strict=True):
            alike.setdefault(title, []).append(set(own))
        shared = {title: set.intersection(*own) for title, own in alike.items()}
        found = [
            ", ".join((title, *(fact for fact in own if fact and fact not in shared[title])))
            for title, own in zip(found, told, strict=True)
        ]
    return found


def anchor(*words: str) -> str:
    """An id within the page, of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


class Figure(Frozen):
    """One figure.

    Attributes:
        name: its files' name without their endings, unique on a page.
        title: what it shows.
        shape: `lines` over numbers, `bars` that stand on names, or `lying` bars, for long names.
        x, y: what the axes are of, with units; values are always read along `y`, also of lying bars.
        log: whether x is drawn by powers of two, and with it y where there is an ideal line.
        percent: whether y ends at 100.
        shade: x from where to where measured windows lie; none where x is not time.
        interval: what the error bars are; empty where the figure is of a kind that has none.
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
    """What belongs together: one matrix, one comparison, one study.

    Attributes:
        anchor: its id within the page.
        title, lead: what it is, and what came of it in one line: all that is seen of it until it is opened.
        lines: what ran where.
        runs: ids of the runs that it is made from.
        stem: begins the names of its own reports, which lie beside the run directories.
        files: links to these, relative to the page, as far as they are there.
        elsewhere: whether it is of another machine than the latest run.
        empty: what to run where it has no figure.
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
    """One line of what is known of a run; a command can be copied."""

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
        made: of how much and by which version, and on one that is kept nowhere also when, in words.
        counts: words, and how many there are of it.
        latest: what was measured last; None where nothing was.
        missing: what nothing is on file of, each with the command that measures it.
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


FEW: Final = 8  # points of a curve that are told one by one
NAMED: Final = 16  # bars that are, as nobody can see a name between two others


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
