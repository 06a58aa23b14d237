"""What the page is made from: figures as columns of numbers, tables as text, and blocks of both.

Nothing here knows how a browser draws: `assets/figure.js` and `picture.py` draw the same `Figure`, `export.py` writes it as CSV.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import field_validator, model_validator

from runner.core.frozen import Frozen
from runner.core.measurement import FEWEST_RUNS
from runner.core.units import INTERVAL, ends
from runner.report.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.core.measurement import Interval

Row = TypeVar("Row")
SeriesKind = Literal["measured", "published", "ideal"]
Place = float | str
"""Where a point stands: a number, or the name of a bar."""


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


def bounds(intervals: Sequence[Interval | None]) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """`low` and `high` of a series; both empty where there is no interval at all."""
    if not any(intervals):
        return (), ()
    low, high = zip(*map(ends, intervals), strict=True)
    return low, high


def series_of(
    rows: Sequence[Row],
    *,
    x: Callable[[Row], Place],
    y: Callable[[Row], float | None],
    interval: Callable[[Row], Interval | None] = lambda _: None,
    degraded: Callable[[Row], bool] = lambda _: False,
    runs: Callable[[Row], tuple[str, ...]],
    label: Callable[[Row], str] | None = None,
    name: str = "measured",
) -> Series:
    """A series with a point for each of some rows."""
    low, high = bounds(list(map(interval, rows)))
    return Series(
        name=name,
        x=tuple(map(x, rows)),
        y=tuple(map(y, rows)),
        low=low,
        high=high,
        degraded=tuple(map(degraded, rows)),
        runs=tuple(map(runs, rows)),
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
