"""A table as text, for a terminal and for Markdown alike: its cells are made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table


@dataclass(frozen=True)
class Block:
    """A table as text; the first column is words, all others are figures."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def table(self) -> Table:
        """Lay it out for a terminal: headers break after their first word, figures never do, so that 80 columns hold it."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
        for number, header in enumerate(self.headers):
            table.add_column(header.replace(" ", "\n", 1), justify="right" if number else "left", no_wrap=number > 0)
        for cells in self.rows:
            table.add_row(*cells)
        return table

    def markdown(self) -> list[str]:
        """Lines of it."""
        align = (":--", *["--:"] * (len(self.headers) - 1))
        return [line(row) for row in (self.headers, align, *self.rows)]


def line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def escaped(text: str) -> str:
    """Keep a text from ending a cell or starting a new row."""
    return text.replace("|", "\\|").replace("\n", " ")
