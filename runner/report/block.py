"""A table as text, for a terminal and for Markdown alike: its cells are made once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from runner.core.errors import printable
from runner.core.units import ABSENT

# What Markdown or HTML would take for markup; underscores within a word are none (https://spec.commonmark.org/0.31.2/#left-flanking-delimiter-run).
_MARKUP: Final = re.compile(r"[\\`*\[\]~&|]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)|^\s*(?:[#>+-]|\d+[.)])(?=\s)")


@dataclass(frozen=True)
class Block:
    """A table as text; the first column is words, all others are figures."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[str]]) -> Block:
        """Make it of columns by their headers; those of which nothing is known are left out."""
        told = known(columns)
        return cls(headers=tuple(told), rows=tuple(zip(*told.values(), strict=True)))

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


def known(columns: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Those of some columns, by their headers, that hold anything."""
    return {header: cells for header, cells in columns.items() if any(cell != ABSENT for cell in cells)}


def section(
    title: str,
    lead: Sequence[str],
    blocks: Sequence[Block],
    *,
    legend: str,
    notes: Sequence[str],
    measured: Sequence[str] = (),
) -> str:
    """A section in Markdown: what ran where, a line each, tables, what they mean, and every reservation; ends with a newline.

    Args:
        title: text, as `lead` and `notes`, whatever is in it.
        lead: a line each.
        blocks: the tables.
        legend: what they mean, in Markdown.
        notes: every reservation.
        measured: what follows the lead, in Markdown.
    """
    above = (*map(escaped, lead), *measured)
    lines = [f"### {escaped(title)}", "", "  \n".join(above), ""]  # two spaces: a line break
    for block in blocks:
        lines += [*block.markdown(), ""]
    lines.append(legend)
    if notes:
        lines += ["", *listed(notes)]
    return "\n".join(lines) + "\n"


def listed(texts: Iterable[str]) -> list[str]:
    """Texts as the entries of a list in Markdown."""
    return [f"- {escaped(text)}" for text in texts]


def laid_out(title: str, lead: Sequence[str], block: Block, *, legend: str, notes: Sequence[str]) -> Group:
    """The same for a terminal, with one table."""
    first, *others = lead
    return Group(
        Text(title, style="bold"),
        Text(first),
        *(Text(line, style="dim") for line in others),
        Text(),
        block.table(),
        Text(),
        Text(legend, style="dim"),
        *(Text(note, style="yellow") for note in notes),
    )


def line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def escaped(text: str) -> str:
    """A text in Markdown, in a cell or outside of one, in which nothing is markup or ends a line, and no code reaches a terminal."""
    return _MARKUP.sub(_escape, printable(text).replace("\n", " "))


def code(text: str) -> str:
    """A text as code in Markdown, outside of a table; without the mark that would end it."""
    return f"`{printable(text).replace('`', '').replace(chr(10), ' ')}`"


def _escape(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:-1]}\\{word[-1]}"
