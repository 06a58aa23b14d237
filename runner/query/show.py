"""An answer as text: a table for people, CSV and JSON for programs; and the list of all tables."""

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
from rich.table import Table as Laid

from runner.query.tables import Table
from runner.report.block import ABSENT

Row = Sequence[Any]
_ANY_WIDTH: Final = 100_000
"""Columns of a screen on which everything fits, to measure on."""


def print_answer(console: Console, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table as wide as it is where nothing has to fit a screen."""
    laid = Laid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(names):
        numbers = any(isinstance(row[place], int | float | Decimal) for row in rows)
        laid.add_column(name, justify="right" if numbers else "left", no_wrap=not console.is_terminal)
    for row in rows:
        laid.add_row(*map(_cell, row))
    if not console.is_terminal:
        console = Console(highlight=False, width=_ANY_WIDTH, file=console.file)
        console.width = max(1, console.measure(laid).maximum)
    console.print(laid, markup=False)
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}", style="dim")


def to_csv(names: Sequence[str], rows: Sequence[Row]) -> str:
    """A header and a line a row; null is an empty field, a list JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(value) for value in row] for row in rows)
    return text.getvalue()


def to_json(names: Sequence[str], rows: Sequence[Row]) -> str:
    """A list of objects; ends with a newline."""
    found = [{name: _finite(value) for name, value in zip(names, row, strict=True)} for row in rows]
    return json.dumps(found, indent=1, default=str) + "\n"


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """Print every table with its columns, their types, and what they mean."""
    for table in tables:
        console.print(f"{table.name}: {table.row}", style="bold", markup=False, soft_wrap=True)
        laid = Laid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in ("column", "type", "meaning"):
            laid.add_column(name, no_wrap=name == "column")
        for column in table.columns:
            laid.add_row(column.name, column.type, column.meaning)
        console.print(laid, markup=False)
        console.print()


def _cell(value: Any) -> str:
    """A value on a screen: six digits of a number that is not whole."""
    if value is None:
        return ABSENT
    return f"{value:.6g}" if isinstance(value, float) else str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(_finite(value), default=str)
    return value.isoformat() if isinstance(value, date | datetime) else value


def _finite(value: Any) -> Any:
    """The same without what JSON has no word for."""
    if isinstance(value, Decimal):  # what SQL makes of 1.5
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return {name: _finite(one) for name, one in value.items()} if isinstance(value, dict) else value
