"""The report of one matrix in a terminal: a short version that fits one screen, and a complete one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final, Literal

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from runner.analysis.summarize import Row, Status, Summary
from runner.core import units
from runner.core.console import in_user_terms
from runner.report import matrix, modes, telemetry
from runner.report.table import Table, broken_header, plain_table

_STYLES: Final[dict[Status, str]] = {
    "valid": "green",
    "degraded": "yellow",
    "invalid": "bold red",
    "failed": "bold red",
}


def print_short(console: Console, summary: Summary) -> None:
    """Print a matrix briefly: what ran where, the table, those of inference or convergence, and a verdict."""
    print_wrapped(console, summary.title, style="bold")
    for line in (summary.setting, summary.wires):
        print_wrapped(console, line)
    print_wrapped(console, summary.ran_on, style="dim")
    print_wrapped(console, summary.engine_reason, style="yellow")
    console.print(Padding(_fitted(matrix.screen(summary), summary.rows, width=console.width), (1, 0)))
    for one in modes.tables(summary):
        console.print(Padding(one.terminal(), (0, 0, 1, 0)))
    for note in matrix.unequal_work((row.devices, row) for row in summary.rows):
        print_wrapped(console, note, style="dim")
    marks = matrix.interval_marks(summary)
    print_wrapped(console, f"{marks}: {units.INTERVAL}" if marks else None, style="dim")
    print_wrapped(console, in_user_terms(matrix.verdict(summary)), style="bold")


def print_wrapped(console: Console, text: str | None, *, style: str = "") -> None:
    """Print text wrapped between words, never within one; nothing for None."""
    if text:
        lines = textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False)
        console.print(lines, style=style, markup=False, highlight=False, soft_wrap=True)


def print_whole(console: Console, summary: Summary) -> None:
    """Print every table of a matrix with its legend, every reservation, and the path of each record."""
    console.print(Text(summary.title, style="bold"))
    for line, style in (
        (summary.setting, ""),
        (summary.wires, ""),
        (summary.ran_on, "dim"),
        (summary.engine_reason, "yellow"),
        *((legend, "dim") for legend in (matrix.interval_legend(summary), *matrix.peak_legend(summary))),
    ):
        if line:
            console.print(Text(line, style=style))
    console.print(Padding(_table(matrix.scaling(summary), summary.rows), (1, 0)))
    for one in matrix.details(summary):
        console.print(Group(one.terminal(), Text(one.legend, style="dim"), *([Text()] if one.legend else [])))
    noted = telemetry.notes(summary)
    console.print(Group(*(Text(note, style="dim") for note in noted), *([Text()] if noted else [])), end="")
    for note in matrix.notes(summary):
        console.print(Text(note, style="yellow"))
    for directory in summary.record_dirs:
        # Not wrapped, whatever the width: a path broken in two cannot be copied.
        console.print(f"record: {directory}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _fitted(shown: Table, rows: Sequence[Row], *, width: int) -> RichTable:
    """Lay out one line per scale; in too narrow a terminal without training times, and if that is not enough, with intervals on two lines."""
    if _narrowest_width(shown) > width:
        shown = shown.without(*matrix.TIMES)
    if _narrowest_width(shown) > width:
        broken = tuple(tuple(cell.replace(" (", "\n(") for cell in cells) for cells in shown.rows)
        shown = shown.model_copy(update={"rows": broken})
    return _table(shown, rows)


def _narrowest_width(shown: Table) -> int:
    """The number of terminal columns that hold the table without breaking a figure; a row's devices may wrap at each word."""
    widths = []
    for name, *cells in zip(shown.columns, *shown.rows, strict=True):
        texts = " ".join(cells).split() if name == "devices" else cells
        widths.append(max(map(len, (*broken_header(name).split("\n"), *texts))))
    return sum(widths) + 2 * (len(widths) - 1)


def _table(shown: Table, rows: Sequence[Row]) -> RichTable:
    """Lay out one line per scale, with its status alone for its validity, since the notes say the rest; only headers and devices wrap."""
    table = plain_table()
    for name in shown.columns:
        justify: Literal["left", "right"] = "left" if name in ("devices", "validity") else "right"
        table.add_column(broken_header(name), justify=justify, no_wrap=name != "devices")
    for row, (*plain, _) in zip(rows, shown.rows, strict=True):
        table.add_row(*plain, Text(row.status, style=_STYLES[row.status]))
    return table
