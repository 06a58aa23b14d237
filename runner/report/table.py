"""The scaling table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.report import figures, modes, telemetry

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from runner.analysis.summary import Status, Summary

_STYLES: dict[Status, str] = {"valid": "green", "degraded": "yellow", "invalid": "bold red", "failed": "bold red"}


def print_report(console: Console, summary: Summary) -> None:
    """Print the scaling table, and under it where each record is."""
    console.print(scaling_table(summary))
    for directory in summary.record_dirs:
        # Unwrapped whatever the width: a path broken in two cannot be copied.
        console.print(f"record: {directory}", style="dim", markup=False, highlight=False, soft_wrap=True)


def scaling_table(summary: Summary) -> RenderableType:
    """Lay a summary out: what ran where, what `±` is, the table, and every reservation."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    block = figures.scaling(summary)
    for name in block.headers:
        text = name in ("devices", "validity")
        # Headers and words wrap, figures never do: the table then fits 80 columns.
        header = name.replace(" ", "\n", 1) if "(" in name else name
        table.add_column(header, justify="left" if text else "right", no_wrap=not text)
    for row, (*plain, validity) in zip(summary.rows, block.rows, strict=True):
        table.add_row(*plain, Text(validity, style=_STYLES[row.status]))
    return Group(
        Text(summary.title, style="bold"),
        Text(summary.setting),
        *([Text(summary.wires)] if summary.wires else []),
        Text(summary.ran_on, style="dim"),
        *([Text(summary.engine_reason, style="yellow")] if summary.engine_reason else []),
        Text(figures.interval_legend(summary), style="dim"),
        *(Text(legend, style="dim") for legend in figures.peak_legend(summary)),
        Padding(table, (1, 0)),
        *modes.tables(summary),
        *_parts(summary),
        *telemetry.tables(summary),
        *(Text(note, style="yellow") for note in figures.notes(summary)),
    )


def _parts(summary: Summary) -> tuple[RenderableType, ...]:
    """Where the time of a step went; nothing where no program told."""
    block = figures.parts(summary)
    return (block.table(), Text(figures.PARTS_LEGEND, style="dim"), Text()) if block else ()
