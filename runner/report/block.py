"""A table as text, for a terminal and for Markdown alike: its cells are made once."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from rich import box
from rich.table import Table

from runner.core.errors import printable
from runner.core.units import ABSENT, ends_by_column
from runner.report.page.model import Table as PageTable

Entry = TypeVar("Entry")
# What Markdown or HTML would take for markup; underscores within a word are none (https://spec.commonmark.org/0.31.2/#left-flanking-delimiter-run).
_MARKUP: Final = re.compile(r"[\\`*\[\]~&|]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)|^\s*(?:[#>+-]|\d+[.)])(?=\s)")


@dataclass(frozen=True)
class Block:
    """A table as text; the first column and those named in `words` are text, all others are figures."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()

    @classmethod
    def laid(
        cls, rows: Sequence[Entry], columns: Mapping[str, Callable[[Entry], str]], *, words: tuple[str, ...] = ()
    ) -> Block:
        """Lay out a row for each entry."""
        cells = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
        return cls(headers=tuple(columns), rows=cells, words=words)

    @classmethod
    def of(
        cls, rows: Sequence[Entry], columns: Mapping[str, Callable[[Entry], str]], *, words: tuple[str, ...] = ()
    ) -> Block:
        """The same without columns of which nothing is known."""
        known = {header: cell for header, cell in columns.items() if any(cell(row) != ABSENT for row in rows)}
        return cls.laid(rows, known, words=words)

    def without(self, header: str) -> Block:
        """The same but for a column."""
        kept = [place for place, name in enumerate(self.headers) if name != header]
        rows = tuple(tuple(cells[place] for place in kept) for cells in self.rows)
        return Block(headers=tuple(self.headers[place] for place in kept), rows=rows, words=self.words)

    def titled(self, title: str, *, legend: str = "") -> PageTable:
        """The same for the page."""
        return PageTable(title=title, columns=self.headers, rows=self.rows, legend=legend)

    def table(self) -> Table:
        """Lay it out for a terminal: headers break after their first word, figures never do, so that 80 columns hold it."""
        table = plain_table()
        for number, name in enumerate(self.headers):
            justify: Literal["left", "right"] = "right" if number and name not in self.words else "left"
            table.add_column(name.replace(" ", "\n", 1), justify=justify, no_wrap=number > 0)
        for cells in self.rows:
            table.add_row(*cells)
        return table

    def markdown(self) -> list[str]:
        """Lines of it."""
        align = [":--" if not number or name in self.words else "--:" for number, name in enumerate(self.headers)]
        return [line(row) for row in (self.headers, align, *self.rows)]


def plain_table() -> Table:
    """A table for a terminal, without columns yet."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)


def section(title: str, lead: Sequence[str], *parts: Block | str | Sequence[str], measured: Sequence[str] = ()) -> str:
    """A section in Markdown; ends with a newline.

    Args:
        title: text, whatever is in it.
        lead: what ran where, text, a line each.
        parts: what is below, in order: a table, a paragraph in Markdown, or texts as a list; empty ones are left out.
        measured: lines that follow the lead, in Markdown.
    """
    lines = "  \n".join((*map(escaped, lead), *measured))  # two spaces: a line break
    found = [f"### {escaped(title)}", lines]
    for part in parts:
        texts = part.markdown() if isinstance(part, Block) else [part] if isinstance(part, str) else listed(part)
        found.append("\n".join(texts))
    return "\n\n".join(filter(None, found)) + "\n"


def listed(texts: Iterable[str]) -> list[str]:
    """Texts as the entries of a list in Markdown."""
    return [f"- {escaped(text)}" for text in texts]


def csv_text(rows: Sequence[Mapping[str, object]], *, columns: Sequence[str] = ()) -> str:
    """Rows as CSV below `columns` and the names of all others that a row has: full precision, an empty field where there is no figure."""
    text = io.StringIO()
    names = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def fields(of: object, *names: str) -> dict[str, Any]:
    """Some fields of a record for a CSV: of an interval both its ends, of several texts all in one."""
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(of, name, None)
        if name.endswith("_ci95"):
            found |= ends_by_column(name.removesuffix("_ci95"), value)
        else:
            found[name] = "; ".join(value) if isinstance(value, tuple) else value
    return found


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
