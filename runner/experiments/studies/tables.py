"""The tables of a plan and of a reproduction, each declared once, for a terminal, for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from runner.core.console import open_screen
from runner.core.measurement import FEWEST_RUNS, Interval
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width
from runner.experiments.studies.model import (
    Cell,
    CellOutcome,
    Comparison,
    Judgement,
    Machine,
    Observation,
    Reproduction,
)
from runner.experiments.studies.request import Scale
from runner.experiments.studies.study import Study
from runner.report.block import code, escaped, line, listed
from runner.report.page.model import Table
from runner.results.published.model import Conditions

Row = tuple[str, ...]

_FIGURES_LEGEND: Final = f"{PLUS_MINUS}; ratio: measured ÷ published; a figure that differs from the source's run in anything is not reproduced"
_FINDINGS_LEGEND: Final = f"indicated, not indicated: seen, or not, but on degraded runs, on fewer than {FEWEST_RUNS} of a cell, or without an interval"
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
    """Print what is going to run, what can't and why, and where it differs from the source."""
    console.print(Text(study.title, style="bold"))
    console.print(Text(place(machine, scale)))
    _print(console, plan(study, cells))
    if not_here := reasons(cells):
        console.print(Text("not here:", style="bold"))
        for entry in not_here:
            console.print(Text(f"  {entry}", style="dim"))
    _print(console, differences(cells))


def print_studies(console: Console, found: Sequence[tuple[str, str, Machine, Sequence[Cell]]]) -> None:
    """Print every study, with how much of it can run here."""
    rows = tuple(
        (name, title, str(sum(not cell.extra for cell in cells)), _here(cells), str(len(differences(cells).rows)))
        for name, title, _, cells in found
    )
    _print(console, Table(title="Studies", columns=("study", "what", "runs", "here", "differences"), rows=rows))
    for machine in {machine.name: machine for _, _, machine, _ in found}.values():
        console.print(Text(f"here: {machine.name}, {machine.device_name}", style="dim"))


def print_reproduction(console: Console, reproduction: Reproduction) -> None:
    """Print the tables of a study."""
    console.print()
    console.print(Text(reproduction.title, style="bold"))
    console.print(Text(place(reproduction.machine, reproduction.scale, reproduction.cells)))
    for table in _results(reproduction):
        _print(console, table)
    console.print(Text(counted(reproduction.judgements, reproduction.comparisons), style="bold"))
    for note in reproduction.notes:
        console.print(Text(note, style="yellow"))


def _print(console: Console, table: Table) -> None:
    """Print a table; a status or verdict has a colour by its first words."""
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in table.columns:
        drawn.add_column(column, overflow="fold")
    for row in table.rows:
        cells = [
            Text(cell, style=_STYLES.get(cell.partition(":")[0], "") if column in {"status", "verdict"} else "")
            for column, cell in zip(table.columns, row, strict=True)
        ]
        drawn.add_row(*cells)
    console.print(Padding(drawn, (1, 0)))
    if table.legend:
        console.print(Text(table.legend, style="dim"))


def markdown(reproduction: Reproduction) -> str:
    """The tables of a study for people who paste; ends with a newline."""
    commit = f", commit {reproduction.git[:12]}" if reproduction.git else ""
    on = place(reproduction.machine, reproduction.scale, reproduction.cells)
    lines = [
        f"# {escaped(reproduction.title)}",
        "",
        f"Study {code(reproduction.study)}, {escaped(f'{on}, {reproduction.made_at:%Y-%m-%d}{commit}')}",
        "",
        counted(reproduction.judgements, reproduction.comparisons),
        "",
    ]
    skipped = reasons([cell for cell in reproduction.cells if cell.status == "skipped"])
    for table in _results(reproduction):
        rows = [line(table.columns), line([":--"] * len(table.columns)), *map(line, table.rows)]
        lines += [f"## {table.title}", "", *(rows if table.rows else ["none"]), ""]
        if table.title == "Runs" and skipped:
            lines += ["not here:", "", *listed(skipped), ""]
        lines += [table.legend, ""] if table.legend else []
    if reproduction.notes:
        lines += ["notes:", "", *listed(reproduction.notes), ""]
    return "\n".join(lines).rstrip() + "\n"


def _results(reproduction: Reproduction) -> tuple[Table, ...]:
    return (runs(reproduction), differences(reproduction.cells), figures(reproduction), findings(reproduction))


def plan(study: Study, cells: Sequence[Cell]) -> Table:
    """One row a block: how many runs the source has, and how many of them, or beside them, run here."""
    by_block = [(block, [cell for cell in cells if cell.block == block.id]) for block in study.blocks]
    rows = tuple(
        (block.id, block.says, str(sum(not cell.extra for cell in own)), _here(own)) for block, own in by_block if own
    )
    return Table(title="Plan", columns=("block", "what", "runs", "here"), rows=rows)


def runs(reproduction: Reproduction) -> Table:
    """Every run of the source that was run, failed or was not started, with its throughput, and what it ran in."""
    rates = {
        observed.runs: observed
        for observed in reproduction.observations
        if observed.metric == "throughput" and observed.iterations is None
    }
    rows = []
    for cell in reproduction.cells:
        if cell.status != "skipped":
            rate = next((rates[ids] for ids in rates if set(ids) <= set(cell.runs) and ids), None)
            why = _reasons_of(cell)
            rows.append(
                (
                    cell.id,
                    _amount(rate),
                    _processes(cell),
                    " and ".join(cell.software) or ABSENT,
                    " and ".join(cell.images) or ABSENT,
                    f"{cell.status}: {why}" if why else cell.status,
                )
            )
    columns = ("run", "throughput ±", "runs", "software", "image", "status")
    return Table(title="Runs", columns=columns, rows=tuple(rows))


def differences(cells: Sequence[Cell | CellOutcome]) -> Table:
    """Where the runs differ from the source's, each difference once, with the blocks that it is of."""
    by_block: dict[Row, dict[str, None]] = {}
    for cell in cells:
        runs_here = not cell.why if isinstance(cell, Cell) else cell.status == "ran"
        for one in cell.altered if runs_here else ():
            by_block.setdefault((cell.block, one.field.replace("_", " "), one.published), {})[one.here] = None
    found: dict[Row, list[str]] = {}
    for (block, *there), here in by_block.items():
        found.setdefault((*there, ", ".join(here)), []).append(block)
    rows = tuple((*difference, ", ".join(blocks)) for difference, blocks in found.items())
    return Table(title="Differences from the source", columns=("differs in", "source", "here", "of"), rows=rows)


def figures(reproduction: Reproduction) -> Table:
    """Published beside measured."""
    rows = tuple(
        (
            comparison.figure,
            comparison.where,
            _published(comparison),
            _amount(comparison.measured),
            _runs_behind(comparison.measured),
            _with_interval(comparison.ratio, comparison.ratio_ci95),
            _verdict(comparison),
        )
        for comparison in reproduction.comparisons
    )
    columns = ("figure", "printed in", "published", "measured ±", "runs", "ratio ±", "verdict")
    return Table(title="Figures", columns=columns, rows=rows, legend=_FIGURES_LEGEND)


def findings(reproduction: Reproduction) -> Table:
    """The verdict on each conclusion."""
    rows = tuple(
        (
            judged.finding.says,
            f"{judged.verdict}: {'; '.join(judged.doubts)}" if judged.doubts else judged.verdict,
            str(len(judged.runs)) if judged.runs else ABSENT,
            judged.why,
        )
        for judged in reproduction.judgements
    )
    columns = ("finding", "verdict", "runs", "why")
    return Table(title="Findings", columns=columns, rows=rows, legend=_FINDINGS_LEGEND)


def conditions(of: Conditions) -> str:
    """What a source says of a figure in one line: `model resnet50, gpus 4`."""
    told = [f"{name.replace('_', ' ')} {value}" for name, value in of.stated.items() if name not in {"note", "versus"}]
    against = [
        f"{name.replace('_', ' ')} {' or '.join(map(str, values))}"
        for name, values in (of.versus.stated.items() if of.versus else ())
    ]
    return ", ".join([*told, *([f"against {', '.join(against)}"] if against else [])])


def place(machine: Machine, scale: str, cells: Sequence[CellOutcome] = ()) -> str:
    """`small, on vm: AMD EPYC, 2 CPU cores for GPUs`; of cells that ran, the devices that their records have."""
    ran = dict.fromkeys(device for cell in cells for device in cell.devices)
    instead = "" if machine.device == "gpu" else " in place of GPUs"
    if ran:
        return f"{scale}, on {machine.name}: {' and '.join(ran)}{instead}"
    nodes = f" of {len(machine.devices)} nodes" if len(machine.devices) > 1 else ""
    return f"{scale}, on {machine.name}: {machine.device_name}, {machine.in_words}{instead}{nodes}"


def reasons(cells: Iterable[Cell | CellOutcome]) -> list[str]:
    """Why some don't run, each reason once, with the runs that it is of."""
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.why:
            groups.setdefault(cell.why, {})[cell.id] = None
    return [f"{why}: {', '.join(names)}" for why, names in groups.items()]


def counted(judgements: Sequence[Judgement], comparisons: Sequence[Comparison]) -> str:
    """How many findings and figures came to each verdict, in a sentence."""
    of_findings = [judged.verdict for judged in judgements]
    told = (
        f"{of_findings.count('holds')} of {len(of_findings)} findings hold, {of_findings.count('does not hold')} do not; on degraded or too "
        f"few runs {of_findings.count('indicated')} are indicated and {of_findings.count('not indicated')} are not; "
        f"{of_findings.count('not testable here')} can't be tested here"
    )
    kinds = [comparison.verdict for comparison in comparisons]
    each = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return f"{told}; figures: {each or 'none'}"


def _here(cells: Sequence[Cell]) -> str:
    own = sum(cell.request is not None and not cell.extra for cell in cells)
    beside = sum(cell.request is not None and cell.extra for cell in cells)
    return f"{own}, and {beside} smaller" if beside else str(own)


def _runs_behind(measured: Observation | None) -> str:
    """How many runs of a cell a figure rests on: `3`, `3, 1 degraded`."""
    if measured is None:
        return ABSENT
    return f"{measured.repeats}, {measured.degraded} degraded" if measured.degraded else str(measured.repeats)


def _processes(cell: CellOutcome) -> str:
    """How many runs of a cell may be used, and passes under a profiler beside them: `3`, `1 and 2 passes`, `1 pass`."""
    passes = f"{cell.passes} pass{'' if cell.passes == 1 else 'es'}" if cell.passes else ""
    return " and ".join(word for word in (str(cell.measured) if cell.measured else "", passes) if word) or ABSENT


def _reasons_of(cell: CellOutcome) -> str:
    """Why it failed or was not run, and how many of its runs are degraded, with their reasons."""
    degraded = f"{cell.degraded} degraded ({'; '.join(cell.doubts)})" if cell.degraded else ""
    return "; ".join(word for word in (cell.why or "", degraded) if word)


def _fields(comparison: Comparison) -> tuple[str, ...]:
    """In what a figure's runs differ, as people write it."""
    return tuple(field.replace("_", " ") for field in comparison.fields)


def _published(comparison: Comparison) -> str:
    if comparison.published is None:
        return "several values"
    sign = f"{comparison.bound} " if comparison.bound else "about " if comparison.approx else ""
    return f"{sign}{comparison.published} {comparison.unit}"


def _verdict(comparison: Comparison) -> str:
    if comparison.fields or comparison.doubts:
        return f"{comparison.verdict}: {'; '.join((*comparison.doubts, *_fields(comparison)))}"
    needs_why = comparison.verdict == "not measured" and comparison.why
    return f"{comparison.verdict}: {comparison.why}" if needs_why else comparison.verdict


def _amount(observed: Observation | None) -> str:
    return f"{_with_interval(observed.value, observed.ci95)} {observed.unit}" if observed else ABSENT


def _with_interval(value: float | None, ci95: Interval | None) -> str:
    if value is None:
        return ABSENT
    return f"{_number(value)} ± {_number(ci95.half_width)}" if ci95 else _number(value)


def _number(value: float) -> str:
    """Three digits that count: 0.0123, 1.23, 12.3, 1,230."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - more digits than count


_FIGURE_COLUMNS: Final[dict[str, Callable[[Comparison], str]]] = {
    "figure": lambda one: one.figure,
    "quantity": lambda one: one.metric.replace("_", " "),
    "unit": lambda one: one.unit,
    "of": lambda one: conditions(one.conditions),
    "published": lambda one: (
        "several" if one.published is None else f"{one.bound or ('≈' if one.approx else '')}{one.published}"
    ),
    "measured ±": lambda one: figure(one.measured.value, half_width(one.measured.ci95)) if one.measured else ABSENT,
    "runs": lambda one: _runs_behind(one.measured),
    "ratio ±": lambda one: figure(one.ratio, half_width(one.ratio_ci95)),
    "verdict": lambda one: one.verdict,
    "why": lambda one: "; ".join(word for word in (*one.doubts, ", ".join(_fields(one)), one.why or "") if word),
    "printed in": lambda one: one.where,
}
_FINDING_COLUMNS: Final[dict[str, Callable[[Judgement], str]]] = {
    "finding": lambda one: one.finding.id,
    "says": lambda one: one.finding.says,
    "verdict": lambda one: one.verdict,
    "runs": lambda one: str(len(one.runs)) if one.runs else ABSENT,
    "why": lambda one: "; ".join((*one.doubts, one.why)),
    "printed in": lambda one: one.finding.where,
}
_CELL_COLUMNS: Final[dict[str, Callable[[CellOutcome], str]]] = {
    "cell": lambda cell: cell.id,
    "of": lambda cell: ", ".join(word for word in (conditions(cell.where), cell.case or "") if word),
    "status": lambda cell: cell.status,
    "why": _reasons_of,
    "runs": _processes,
    "software": lambda cell: " and ".join(cell.software),
    "image": lambda cell: " and ".join(cell.images),
    "devices": lambda cell: " and ".join(cell.devices),
    "differs in": lambda cell: ", ".join(one.field.replace("_", " ") for one in cell.altered),
    "run directories": lambda cell: " ".join(cell.runs),
}


def page_tables(reproduction: Reproduction) -> tuple[Table, ...]:
    """The tables of the page that have rows: on the page, verdict and reason have columns of their own, to sort by."""
    missing = tuple((one.cell, one.metric.replace("_", " "), one.why) for one in reproduction.missing)
    every = (
        Table(
            title="Published figures",
            columns=tuple(_FIGURE_COLUMNS),
            rows=tuple(tuple(of(one) for of in _FIGURE_COLUMNS.values()) for one in reproduction.comparisons),
            legend=_FIGURES_LEGEND,
        ),
        Table(
            title="Findings",
            columns=tuple(_FINDING_COLUMNS),
            rows=tuple(tuple(of(one) for of in _FINDING_COLUMNS.values()) for one in reproduction.judgements),
            legend=_FINDINGS_LEGEND,
        ),
        differences(reproduction.cells),
        Table(title="Quantities that could not be had", columns=("cell", "quantity", "why"), rows=missing),
        Table(
            title="Cells",
            columns=tuple(_CELL_COLUMNS),
            rows=tuple(tuple(of(cell) for of in _CELL_COLUMNS.values()) for cell in reproduction.cells),
            legend="runs: those that may be used; software, image, devices: by the records of the runs",
        ),
    )
    return tuple(table for table in every if table.rows)
