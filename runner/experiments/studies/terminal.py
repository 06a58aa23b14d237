"""Studies on a terminal of 80 columns: what can run, what was measured and judged, and of all else how much there is and where it is listed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from runner.experiments.studies import tables
from runner.experiments.studies.model import Cell, Comparison, Machine, Reproduction
from runner.experiments.studies.request import Scale
from runner.experiments.studies.study import Study
from runner.report.page.model import Table

_STYLES: Final = {
    **dict.fromkeys(("holds", "reproduced", "shape agrees", "ran"), "green"),
    **dict.fromkeys(("does not hold", "differs", "shape differs"), "red"),
    **dict.fromkeys(("open", "indicated", "not indicated"), "yellow"),
    "failed": "bold red",
}
_UNBROKEN: Final = frozenset({"runs", "published", "throughput ±", "measured ±", "ratio", "verdict"})
"""Columns of figures, which never break."""


def print_study(
    console: Console, study: Study, cells: Sequence[Cell], *, last: Reproduction | None, command: str
) -> None:
    """Print how much of a study can run here and by which command, and what came of it last."""
    some = any(cell.request for cell in cells)
    why = next((cell.why for cell in cells if cell.why), "no run is of it")
    lines = [f"{_count(cells)}: {command}" if some else f"nothing of it can run here: {why}"]
    if last is None:
        lines.append("not run yet")
    else:
        on = tables.place(last.machine, last.scale, last.cells)
        lines += [
            f"{last.made_at:%Y-%m-%d}, {on}",
            f"findings: {tables.verdicts(last.judgements)}; figures: {tables.verdicts(last.comparisons)}",
        ]
    console.print(Text.assemble((study.id, "bold"), f"  {study.title}"))
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2)))


def print_plan(
    console: Console, study: Study, cells: Sequence[Cell], *, machine: Machine, scale: Scale, whole: bool
) -> None:
    """Print how many runs of the source can run; the `whole` plan lists them, what can't and why, and where they differ from the source."""
    console.print(Text(study.title, style="bold"))
    console.print(Text(tables.place(machine, scale)))
    differences = tables.differences(cells)
    if not whole:
        told = f"{_count(cells)}, with {len(differences.rows)} differences from the source; --dry-run lists them"
        console.print(Text(told, style="dim"))
        return
    _print(console, tables.plan(study, cells))
    if not_here := tables.reasons(cells):
        console.print(Text("\nnot here:", style="bold"))
        for entry in not_here:
            console.print(Padding(Text(entry, style="dim"), (0, 0, 0, 2)))
    _print(console, differences)


def print_reproduction(console: Console, reproduction: Reproduction, *, whole: Path) -> None:
    """Print what was measured and judged; the rest is counted, and listed in the file `whole`."""
    measured = tuple(one for one in reproduction.comparisons if one.measured)
    told = tuple(one for one in reproduction.judgements if one.verdict != "not testable here")
    console.print()
    console.print(Text(reproduction.title, style="bold"))
    console.print(Text(tables.place(reproduction.machine, reproduction.scale, reproduction.cells)))
    console.print(Text(tables.outcome(reproduction), style="bold"))
    _print(console, _runs(reproduction))
    _print(console, _figures(measured))
    findings = tuple((one.verdict, one.finding.says) for one in told)
    _print(console, Table(title="Findings", columns=("verdict", "finding"), rows=findings))
    rest = {
        "figures that nothing was measured for": len(reproduction.comparisons) - len(measured),
        "findings that can't be tested here": len(reproduction.judgements) - len(told),
        "runs that this hardware can't do": sum(cell.status == "skipped" for cell in reproduction.cells),
        "differences from the source": len(tables.differences(reproduction.cells).rows),
    }
    counts = ", ".join(f"{what} {count}" for what, count in rest.items())
    console.print(Text(f"\nnot shown: {counts}; these and the reasons are in"))
    console.print(Text(str(whole)), soft_wrap=True)
    for note in reproduction.notes:
        console.print(Text(note, style="yellow"))


def _count(cells: Sequence[Cell]) -> str:
    """`10 of 30 runs can run here, and 5 smaller ones`."""
    own, smaller = tables.runnable(cells)
    beside = f", and {smaller} smaller ones" if smaller else ""
    return f"{own} of {sum(not cell.extra for cell in cells)} runs can run here{beside}"


def _runs(reproduction: Reproduction) -> Table:
    """The runs without what they ran in."""
    table = tables.runs(reproduction)
    kept = [place for place, name in enumerate(table.columns) if name not in {"software", "image"}]
    columns, *rows = (tuple(row[place] for place in kept) for row in (table.columns, *table.rows))
    return table.model_copy(update={"columns": columns, "rows": tuple(rows)})


def _figures(measured: Sequence[Comparison]) -> Table:
    """Published beside measured; the unit once, where both have the same."""
    columns = ("figure", "published", "measured ±", "ratio", "verdict")
    rows = tuple(
        (
            one.figure,
            tables.published(one),
            tables.amount(one.measured).removesuffix(f" {one.unit}"),
            tables.with_interval(one.ratio, None),
            one.verdict,
        )
        for one in measured
    )
    return Table(title="Figures", columns=columns, rows=rows)


def _print(console: Console, table: Table) -> None:
    """Print a table that has rows; a status or verdict has a colour by its first words."""
    if not table.rows:
        return
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in table.columns:
        drawn.add_column(column, overflow="fold", no_wrap=column in _UNBROKEN)
    for row in table.rows:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell.partition(":")[0], "")) for cell in row))
    console.print(Padding(drawn, (1, 0, 0, 0), expand=False))
