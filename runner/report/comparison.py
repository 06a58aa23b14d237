"""One comparison of runs, ready for every form in which it is shown: Markdown, CSV, PNG, a terminal, a block of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.text import Text

from runner.report.page.model import Block, Figure
from runner.report.table import Table, csv_text, section

Reports = dict[str, str | bytes | None]


def anchor(*words: str) -> str:
    """An id within the page, of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


@dataclass(frozen=True, kw_only=True)
class ComparisonReport:
    """What `runner/report/comparisons.py` declares of a comparison.

    Attributes:
        chapter: of the page, one of `collect.CHAPTERS`.
        lead: what came of it, in one line.
        lines: what ran on what.
        measured: what follows them, in Markdown alone.
        tables: the first is what a terminal shows.
        pictures: what draws those that lie beside the Markdown as well, by the names of their files without `.png`.
    """

    chapter: str
    name: str
    title: str
    lead: str
    lines: tuple[str, ...]
    measured: tuple[str, ...] = ()
    tables: tuple[Table, ...]
    legends: tuple[str, ...]
    notes: tuple[str, ...] = ()
    csv: Sequence[Mapping[str, object]] = ()
    figures: tuple[Figure, ...] = ()
    pictures: Mapping[str, Callable[[], bytes | None]] = field(default_factory=dict)
    runs: tuple[str, ...] = ()

    def markdown(self) -> str:
        """A section; ends with a newline."""
        legend = "; ".join(self.legends)
        return section(self.title, self.lines, *self.tables, legend, self.notes, measured=self.measured)

    def files(self, *, pictures: bool = True) -> Reports:
        """Every report by the name of its file, with or without pictures."""
        return {
            f"{self.name}.md": self.markdown(),
            f"{self.name}.csv": csv_text(self.csv) if self.csv else None,
            **{f"{name}.png": draw() if pictures else None for name, draw in self.pictures.items()},
        }

    def terminal(self) -> Group:
        """The first table with its legend, for a terminal."""
        first, *others = self.lines
        return Group(
            Text(self.title, style="bold"),
            Text(first),
            *(Text(line, style="dim") for line in others),
            Text(),
            self.tables[0].terminal(),
            Text(),
            Text("; ".join(self.legends), style="dim"),
            *(Text(note, style="yellow") for note in self.notes),
        )

    def page_block(self) -> Block:
        """The block of the page, which shows the lead above all else."""
        return Block(
            anchor=anchor(self.name),
            title=self.title,
            lead=self.lead,
            lines=(*(line for line in self.lines if line != self.lead), *self.legends),
            figures=self.figures,
            tables=self.tables,
            notes=self.notes,
            runs=self.runs,
            stem=self.name,
        )
