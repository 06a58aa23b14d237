"""A study on a terminal and as Markdown: what runs and what can't, published beside measured, and what became of the findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.core.console import open_screen
from runner.experiments.studies import text
from runner.experiments.studies.model import Cell, Machine, Reproduction
from runner.experiments.studies.request import Scale
from runner.experiments.studies.study import Study
from runner.report.block import code, escaped, line, listed

_STYLES: Final = {
    "holds": "green",
    "reproduced": "green",
    "shape agrees": "green",
    "ran": "green",
    "does not hold": "red",
    "differs": "red",
    "shape differs": "red",
    "failed": "bold red",
    "open": "yellow",
    "indicated": "yellow",
    "not indicated": "yellow",
}
_WIDTH_OF_A_FILE: Final = 240
"""Columns of a table that goes to a file or another program, where nothing has to fit a screen."""


def screen() -> Console:
    """Where tables go."""
    return open_screen(width_of_a_file=_WIDTH_OF_A_FILE)


def print_plan(console: Console, study: Study, cells: Sequence[Cell], *, machine: Machine, scale: Scale) -> None:
    """What is going to run, what can't and why, and where it differs from the source."""
    console.print(Text(study.title, style="bold"))
    console.print(Text(text.where(machine, scale)))
    console.print(_table(text.PLAN, text.plan(study, cells)))
    _print_list(console, "not here", text.reasons(cells))
    console.print(_table(text.DIFFERENCES, text.differences(cells)))


def print_studies(console: Console, found: Iterable[tuple[str, str, Machine, Sequence[Cell]]]) -> None:
    """Every study, with how much of it can run here."""
    rows = [(text.studies(name, title, cells), machine) for name, title, machine, cells in found]
    console.print(_table(text.STUDIES, [row for row, _ in rows]))
    for machine in {machine.name: machine for _, machine in rows}.values():
        console.print(Text(f"here: {machine.name}, {machine.device_name}", style="dim"))


def print_reproduction(console: Console, reproduction: Reproduction) -> None:
    """The tables of a study."""
    console.print()
    console.print(Text(reproduction.title, style="bold"))
    console.print(Text(text.where(reproduction.machine, reproduction.scale, reproduction.cells)))
    console.print(_table(text.CELLS, text.runs(reproduction), styled=5))
    console.print(_table(text.DIFFERENCES, text.differences(reproduction.cells)))
    console.print(_table(text.FIGURES, text.figures(reproduction), styled=6))
    console.print(Text(text.LEGEND, style="dim"))
    console.print(_table(text.FINDINGS, text.findings(reproduction), styled=1))
    console.print(Text(text.INDICATED_LEGEND, style="dim"))
    console.print(Text(text.counted(reproduction.judgements, reproduction.comparisons), style="bold"))
    for note in reproduction.notes:
        console.print(Text(note, style="yellow"))


def markdown(reproduction: Reproduction) -> str:
    """The same for people who paste; ends with a newline."""
    where = text.where(reproduction.machine, reproduction.scale, reproduction.cells)
    commit = f", commit {reproduction.git[:12]}" if reproduction.git else ""
    lines = [
        f"# {escaped(reproduction.title)}",
        "",
        f"Study {code(reproduction.study)}, {escaped(f'{where}, {reproduction.made_at:%Y-%m-%d}{commit}')}",
        "",
        text.counted(reproduction.judgements, reproduction.comparisons),
        "",
        "## Runs",
        "",
        *_markdown_table(text.CELLS, text.runs(reproduction)),
        *_markdown_list("not here", text.reasons([cell for cell in reproduction.cells if cell.status == "skipped"])),
        "## Differences from the source",
        "",
        *_markdown_table(text.DIFFERENCES, text.differences(reproduction.cells)),
        "## Figures",
        "",
        *_markdown_table(text.FIGURES, text.figures(reproduction)),
        text.LEGEND,
        "",
        "## Findings",
        "",
        *_markdown_table(text.FINDINGS, text.findings(reproduction)),
        text.INDICATED_LEGEND,
        "",
        *_markdown_list("notes", reproduction.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(headers: Sequence[str], rows: Sequence[text.Row], *, styled: int | None = None) -> Padding:
    """A table whose column `styled` has a colour by its first words."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        cells = [Text(cell) for cell in row]
        if styled is not None:
            cells[styled].stylize(_STYLES.get(row[styled].partition(":")[0], ""))
        table.add_row(*cells)
    return Padding(table, (1, 0))


def _print_list(console: Console, title: str, entries: Sequence[str]) -> None:
    if entries:
        console.print(Text(f"{title}:", style="bold"))
        for entry in entries:
            console.print(Text(f"  {entry}", style="dim"))


def _markdown_table(headers: Sequence[str], rows: Sequence[text.Row]) -> list[str]:
    if not rows:
        return ["none", ""]
    return [line(headers), line([":--"] * len(headers)), *map(line, rows), ""]


def _markdown_list(title: str, entries: Sequence[str]) -> list[str]:
    return [f"{title}:", "", *listed(entries), ""] if entries else []
