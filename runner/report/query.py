"""Query results as text: a table for people, CSV and JSON for programs; and the list of all tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from runner.core.console import open_console
from runner.core.errors import printable
from runner.core.units import ABSENT
from runner.results.query.tables import Table

Row = Sequence[Any]
_ANY_WIDTH: Final = 100_000  # columns of a screen wide enough for everything, to measure the table on


def print_answer(console: Console, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table if it fits the terminal or the output is not one, else one line per field, so that nothing is truncated."""
    laid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(names):
        numbers = any(isinstance(row[place], int | float | Decimal) for row in rows)
        laid.add_column(Text(name), justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        laid.add_row(*map(_cell, row))
    width = max(1, Measurement.get(console, console.options.update_width(_ANY_WIDTH), laid).maximum)
    if not console.is_terminal:
        console = open_console(width=width, file=console.file)
    if width <= console.width:
        console.print(laid)
    else:
        _print_fields(console, names, rows)
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}", style="dim", soft_wrap=True)


def _print_fields(console: Console, names: Sequence[str], rows: Sequence[Row]) -> None:
    for number, row in enumerate(rows, start=1):
        console.print(Rule(Text(f"row {number}"), align="left", style="dim"))
        laid = RichTable.grid(padding=(0, 2, 0, 0))
        laid.add_column(overflow="fold")
        laid.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            laid.add_row(Text(name, style="bold"), _cell(value))
        console.print(laid)


def to_csv(names: Sequence[str], rows: Sequence[Row]) -> str:
    """A header, then one line per row; null is an empty field, a list is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(printable, names))
    writer.writerows([_plain(value) for value in row] for row in rows)
    return text.getvalue()


def to_json(names: Sequence[str], rows: Sequence[Row]) -> str:
    """A list of objects; ends with a newline."""
    found = [{name: _json_safe(value) for name, value in zip(names, row, strict=True)} for row in rows]
    return json.dumps(found, indent=1, default=str) + "\n"


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """Print every table with its columns, their types, and their meanings."""
    for table in tables:
        console.print(f"{table.name}: {table.row}", style="bold", markup=False, soft_wrap=True)
        laid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in ("column", "type", "meaning"):
            laid.add_column(name, no_wrap=name == "column")
        for column in table.columns:
            laid.add_row(column.name, column.type, column.meaning)
        console.print(laid, markup=False)
        console.print()


def _cell(value: Any) -> Text:
    """A value for a terminal: floats have six significant digits."""
    if value is None:
        return Text(ABSENT)
    return Text(f"{value:.6g}" if isinstance(value, float) else str(_plain(value)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(_json_safe(value), default=str)
    if isinstance(value, str):
        return printable(value)
    return value.isoformat() if isinstance(value, date | datetime) else value


def _json_safe(value: Any) -> Any:
    """Replace values that JSON cannot represent."""
    if isinstance(value, Decimal):  # the type of a literal such as 1.5 in SQL
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_json_safe(one) for one in value]
    return {name: _json_safe(one) for name, one in value.items()} if isinstance(value, dict) else value
