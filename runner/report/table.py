"""Tables as text, defined once for a terminal, Markdown, CSV and the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from runner.core.errors import printable
from runner.core.frozen import Frozen
from runner.core.units import ABSENT, interval_columns

Entry = TypeVar("Entry")
Columns = Mapping[str, Callable[[Entry], str]]
# Markup to Markdown or HTML; underscores within a word are not (https://spec.commonmark.org/0.31.2/#left-flanking-delimiter-run).
_MARKUP: Final = re.compile(r"[\\`*\[\]~&|]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)|^\s*(?:[#>+-]|\d+[.)])(?=\s)")


class Table(Frozen):
    """A table as text; the first column and those in `words` are text, all others are figures.

    The page shows the title, and a `folded` table closed at first; there, all-numeric columns are right-aligned and sort by value.
    """

    title: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    legend: str = ""
    folded: bool = False

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], columns: Columns[Entry], **more: Any) -> Table:
        """Lay out one row per entry; `more` are other fields."""
        rows = tuple(tuple(cell(entry) for cell in columns.values()) for entry in entries)
        return cls(columns=tuple(columns), rows=rows, **more)

    @classmethod
    def without_empty_columns(cls, entries: Sequence[Entry], columns: Columns[Entry], **more: Any) -> Table:
        """The same, without columns that have no known value."""
        known = {header: cell for header, cell in columns.items() if any(cell(one) != ABSENT for one in entries)}
        return cls.from_entries(entries, known, **more)

    def without(self, *names: str) -> Table:
        """The same, without some columns."""
        kept = [place for place, name in enumerate(self.columns) if name not in names]
        columns, *rows = (tuple(row[place] for place in kept) for row in (self.columns, *self.rows))
        return self.model_copy(update={"columns": columns, "rows": tuple(rows)})

    def terminal(self) -> RichTable:
        """Lay it out for a terminal: headers break (`broken_header`) and figures never do, so that 80 columns are enough."""
        table = plain_table()
        for number, name in enumerate(self.columns):
            words = not number or name in self.words
            table.add_column(
                broken_header(name), justify="left" if words else "right", no_wrap=not words, overflow="fold"
            )
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def markdown(self) -> list[str]:
        """Its lines, without title and legend."""
        align = [":--" if not number or name in self.words else "--:" for number, name in enumerate(self.columns)]
        return [line(row) for row in (self.columns, align, *self.rows)]


def broken_header(name: str) -> str:
    """A header for a terminal: broken after its first word, as it is often longer than the figures below it."""
    return name.replace(" ", "\n", 1)


def plain_table() -> RichTable:
    """A table for a terminal, without columns yet."""
    return RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)


def section(title: str, lead: Sequence[str], *parts: Table | str | Sequence[str], measured: Sequence[str] = ()) -> str:
    """A section in Markdown; ends with a newline.

    Args:
        title: plain text, which is escaped.
        lead: what ran where, one line each; plain text, which is escaped.
        parts: the body, in order: a table with its legend, a paragraph in Markdown, or plain texts as a list; empty parts are left out.
        measured: lines that follow the lead, in Markdown.
    """
    lines = "  \n".join((*map(escaped, lead), *measured))  # two spaces: a line break
    found = [f"### {escaped(title)}", lines]
    for part in parts:
        if isinstance(part, Table):
            found += ["\n".join(part.markdown()), escaped(part.legend)]
        else:
            found.append(part if isinstance(part, str) else "\n".join(listed(part)))
    return "\n\n".join(filter(None, found)) + "\n"


def listed(texts: Iterable[str]) -> list[str]:
    """Texts as entries of a Markdown list."""
    return [f"- {escaped(text)}" for text in texts]


def csv_text(rows: Sequence[Mapping[str, object]], *, columns: Sequence[str] = ()) -> str:
    """Rows as CSV: `columns` first, then all other keys; full precision, and an empty field for a missing figure."""
    text = io.StringIO()
    names = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")  # `names` has every key
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def fields(of: object, *names: str) -> dict[str, Any]:
    """Some fields of a record for a CSV row: an interval becomes its two ends, several texts are joined."""
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(of, name, None)
        if name.endswith("_ci95"):
            found |= interval_columns(name.removesuffix("_ci95"), value)
        else:
            found[name] = "; ".join(value) if isinstance(value, tuple) else value
    return found


def fixed(value: float | None, decimals: int = 1) -> str:
    """A number with a fixed number of decimals, whatever its interval supports."""
    return ABSENT if value is None else f"{value:.{decimals}f}"


def line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def escaped(text: str) -> str:
    """Escape a text for Markdown, inside or outside of a table: nothing in it is markup, ends the line, or is a terminal control code."""
    return _MARKUP.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", printable(text).replace("\n", " "))


def code(text: str) -> str:
    """A text as inline code in Markdown, outside of a table; backticks in it are dropped."""
    return f"`{printable(text).replace('`', '').replace(chr(10), ' ')}`"
