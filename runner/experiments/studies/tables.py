"""The tables of a plan and of a reproduction, each declared once by its columns, and the sentences in them.

A terminal of 80 columns shows what can run, what was measured and judged; all else is counted, with the place where it is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from runner.core.measurement import FEWEST_RUNS
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width
from runner.experiments.studies.model import (
    Cell,
    CellOutcome,
    Comparison,
    Judgement,
    Machine,
    Observation,
    Reproduction,
    Scale,
)
from runner.experiments.studies.study import Study
from runner.report.table import Columns, Table, code, escaped, listed, plain_table
from runner.results.published.model import Conditions

_FIGURES_LEGEND: Final = f"{PLUS_MINUS}; ratio: measured ÷ published; `x to y`: of the cells that match the figure equally; a figure that differs from the source's run in anything is not reproduced"
_FINDINGS_LEGEND: Final = (
    "undecided: within the noise of the runs; indicated, not indicated: seen, or not, but on degraded runs, on fewer than "
    f"{FEWEST_RUNS} of a cell, or without an interval"
)


# uw-hardware heads a table with temperature and prints none; cern-wgan's `fp32_utilisation` is a plain mean over kernels, ours is weighted.
UNPRINTED: Final = ("temperature_min", "temperature_avg", "temperature_max", "fp32_utilisation_unweighted")
# Shown if findings are about it, e.g. in nyu-profiling, which plots it: the count by counters, and the suite's own.
FLOP: Final = ("average_flop_count", "average_flop_count_of_model")


def markdown(reproduction: Reproduction) -> str:
    """Write the tables of a study as Markdown, to paste; ends with a newline."""
    commit = f", commit {reproduction.git[:12]}" if reproduction.git else ""
    on = place(reproduction.machine, reproduction.scale, reproduction.cells)
    lines = [
        f"# {escaped(reproduction.title)}",
        "",
        f"Study {code(reproduction.study)}, {escaped(f'{on}, {reproduction.made_at:%Y-%m-%d}{commit}')}",
        "",
        outcome_text(reproduction),
        "",
    ]
    skipped = reasons([cell for cell in reproduction.cells if cell.status == "skipped"])
    more = also_measured(reproduction)
    for table in (
        *(runs(reproduction), differences(reproduction.cells), figures(reproduction)),
        *((more,) if more.rows else ()),
        findings(reproduction),
    ):
        words = table.model_copy(update={"words": table.columns})
        lines += [f"## {table.title}", "", *(words.markdown() if table.rows else ["none"]), ""]
        if table.title == "Runs" and skipped:
            lines += ["not here:", "", *listed(skipped), ""]
        lines += [table.legend, ""] if table.legend else []
    if reproduction.notes:
        lines += ["notes:", "", *listed(reproduction.notes), ""]
    return "\n".join(lines).rstrip() + "\n"


def page_tables(reproduction: Reproduction) -> tuple[Table, ...]:
    """Return the tables of the page that have rows; there, verdict and reason have separate columns, to sort by."""
    missing = tuple((one.cell, one.metric.replace("_", " "), one.why) for one in reproduction.missing)
    software = "runs: those that may be used; software, image, devices: by the records of the runs"
    every = (
        Table.from_entries(reproduction.comparisons, _PAGE_FIGURES, title="Published figures", legend=_FIGURES_LEGEND),
        Table.from_entries(reproduction.judgements, _PAGE_FINDINGS, title="Findings", legend=_FINDINGS_LEGEND),
        differences(reproduction.cells),
        Table(title="Quantities that could not be had", columns=("cell", "quantity", "why"), rows=missing),
        Table.from_entries(reproduction.cells, _PAGE_CELLS, title="Cells", legend=software),
        also_measured(reproduction),
    )
    return tuple(table for table in every if table.rows)


def plan(study: Study, cells: Sequence[Cell]) -> Table:
    """One row per block: how many runs the source has, how many of them run here, and how many smaller ones."""
    by_block = [(block, [cell for cell in cells if cell.block == block.id]) for block in study.blocks]
    rows = tuple(
        (block.id, block.says, str(sum(not cell.extra for cell in own)), _runs_here(own))
        for block, own in by_block
        if own
    )
    return Table(title="Plan", columns=("block", "what", "runs", "here"), rows=rows)


def runs(reproduction: Reproduction) -> Table:
    """Every run of the source that ran, failed or did not start, with its throughput and its software."""
    columns: Columns[CellOutcome] = {
        "run": lambda cell: cell.id,
        "throughput ±": _throughputs(reproduction),
        "runs": _run_counts,
        "software": lambda cell: " and ".join(cell.software) or ABSENT,
        "image": lambda cell: " and ".join(cell.images) or ABSENT,
        "status": lambda cell: ": ".join(filter(None, (cell.status, _reasons_of(cell)))),
    }
    return Table.from_entries([cell for cell in reproduction.cells if cell.status != "skipped"], columns, title="Runs")


def differences(cells: Sequence[Cell | CellOutcome]) -> Table:
    """Differences from the source, each once, with the blocks that it applies to."""
    by_block: dict[tuple[str, str, str], dict[str, None]] = {}
    for cell in cells:
        runs_here = not cell.why if isinstance(cell, Cell) else cell.status == "ran"
        for one in cell.altered if runs_here else ():
            by_block.setdefault((cell.block, one.field.replace("_", " "), one.published), {})[one.here] = None
    found: dict[tuple[str, ...], list[str]] = {}
    for (block, *there), here in by_block.items():
        found.setdefault((*there, ", ".join(here)), []).append(block)
    rows = tuple((*difference, ", ".join(blocks)) for difference, blocks in found.items())
    return Table(title="Differences from the source", columns=("differs in", "source", "here", "of"), rows=rows)


def figures(reproduction: Reproduction) -> Table:
    """Published figures with measured ones."""
    return Table.from_entries(reproduction.comparisons, _FIGURES, title="Figures", legend=_FIGURES_LEGEND)


def also_measured(reproduction: Reproduction) -> Table:
    """Measurements of quantities that the source discusses without printing a figure."""
    about = {part.metric for one in reproduction.judgements for part in one.finding.parts}
    wanted = (*UNPRINTED, *(FLOP if FLOP[0] in about else ()))
    own = [one for one in reproduction.observations if one.metric in wanted]
    columns: Columns[Observation] = {
        "quantity": lambda one: one.metric.replace("_", " "),
        "run": partial(_cell_of, reproduction),
        "measured ±": amount,
        "how": lambda one: one.method or ABSENT,
    }
    return Table.from_entries(own, columns, title="Also measured")


def _cell_of(reproduction: Reproduction, one: Observation) -> str:
    """The cell that an observation is of; its conditions would name the source's software instead of ours."""
    where = one.where.model_copy(update={"gpu_index": None})
    found = (cell.id for cell in reproduction.cells if (cell.where, cell.case) == (where, one.case))
    name = next(found, conditions(one.where))
    return name if one.where.gpu_index is None else f"{name}, GPU {one.where.gpu_index}"


def findings(reproduction: Reproduction) -> Table:
    """The verdict on each conclusion."""
    return Table.from_entries(reproduction.judgements, _FINDINGS, title="Findings", legend=_FINDINGS_LEGEND)


def place(machine: Machine, scale: str, cells: Sequence[CellOutcome] = ()) -> str:
    """Describe scale and machine: `small, on vm: AMD EPYC, 2 CPU cores in place of GPUs`; if cells ran, by the devices in their records."""
    ran = dict.fromkeys(device for cell in cells for device in cell.devices)
    instead = "" if machine.device == "gpu" else " in place of GPUs"
    if ran:
        return f"{scale}, on {machine.name}: {' and '.join(ran)}{instead}"
    nodes = f" of {len(machine.devices)} nodes" if len(machine.devices) > 1 else ""
    return f"{scale}, on {machine.name}: {machine.device_name}, {machine.in_words}{instead}{nodes}"


def reasons(cells: Iterable[Cell | CellOutcome]) -> list[str]:
    """List why some runs are impossible, each reason once, with the runs that it applies to."""
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.why:
            groups.setdefault(cell.why, {})[cell.id] = None
    return [f"{why}: {', '.join(names)}" for why, names in groups.items()]


def outcome_text(reproduction: Reproduction) -> str:
    """Count the verdicts on findings and figures, in a sentence."""
    own = [one.verdict for one in reproduction.judgements]
    return (
        f"{own.count('holds')} of {len(own)} findings hold, {own.count('does not hold')} do not; on degraded or too "
        f"few runs {own.count('indicated')} are indicated and {own.count('not indicated')} are not; {own.count('undecided')} are "
        f"undecided, {own.count('not testable here')} can't be tested here; figures: {verdicts(reproduction.comparisons)}"
    )


def verdicts(judged: Sequence[Comparison | Judgement]) -> str:
    """Count the verdicts: `3 holds, 1 not testable here`."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(one.verdict for one in judged).items()) or "none"


def conditions(of: Conditions) -> str:
    """Write a figure's conditions in one line: `model resnet50, gpus 4`."""
    stated = [
        f"{name.replace('_', ' ')} {value}" for name, value in of.stated.items() if name not in {"note", "versus"}
    ]
    against = [
        f"{name.replace('_', ' ')} {' or '.join(map(str, values))}"
        for name, values in (of.versus.stated.items() if of.versus else ())
    ]
    return ", ".join([*stated, *([f"against {', '.join(against)}"] if against else [])])


def runnable(cells: Sequence[Cell]) -> tuple[int, int]:
    """Count the source's runs that can run here, and the smaller additional ones."""
    extra = [cell.extra for cell in cells if cell.request is not None]
    return extra.count(False), extra.count(True)


def _runs_here(cells: Sequence[Cell]) -> str:
    own, smaller = runnable(cells)
    return f"{own}, and {smaller} smaller" if smaller else str(own)


def _throughputs(reproduction: Reproduction) -> Callable[[CellOutcome], str]:
    rates = [one for one in reproduction.observations if one.metric == "throughput" and one.iterations is None]
    return lambda cell: amount(next((one for one in rates if one.runs and set(one.runs) <= set(cell.runs)), None))


def _runs_behind(one: Comparison) -> str:
    """Count the runs behind a figure: `3`, `3, 1 degraded`."""
    if one.measured is None:
        return ABSENT
    repeats, degraded = one.measured.repeats, one.measured.degraded
    return f"{repeats}, {degraded} degraded" if degraded else str(repeats)


def _run_counts(cell: CellOutcome) -> str:
    """Count a cell's usable runs and profiling passes: `3`, `1 and 2 passes`, `1 pass`."""
    passes = f"{cell.passes} pass{'' if cell.passes == 1 else 'es'}" if cell.passes else ""
    return " and ".join(filter(None, (str(cell.measured or ""), passes))) or ABSENT


def _reasons_of(cell: CellOutcome) -> str:
    """Say why a cell failed or did not run, and how many of its runs are degraded, with the reasons."""
    degraded = f"{cell.degraded} degraded ({'; '.join(cell.doubts)})" if cell.degraded else ""
    return "; ".join(filter(None, (cell.why, degraded)))


def _fields(comparison: Comparison) -> tuple[str, ...]:
    return tuple(field.replace("_", " ") for field in comparison.fields)


def published(comparison: Comparison) -> str:
    """Write the published figure with its unit: `about 220 images/s`."""
    if comparison.published is None:
        return "several values"
    sign = f"{comparison.bound} " if comparison.bound else "about " if comparison.approx else ""
    return f"{sign}{comparison.published} {comparison.unit}"


def _verdict(comparison: Comparison) -> str:
    parts = (*comparison.doubts, *_fields(comparison))
    if not parts and comparison.verdict == "not measured" and comparison.why:
        parts = (comparison.why,)
    return f"{comparison.verdict}: {'; '.join(parts)}" if parts else comparison.verdict


def amount(observed: Observation | None) -> str:
    """Write a measured figure with its interval and unit: `234.6 ± 5.0 images/s`."""
    return f"{figure(observed.value, half_width(observed.ci95))} {observed.unit}" if observed else ABSENT


def _measured(comparison: Comparison) -> str:
    """Write the measured figure with its interval, `234.6 ± 5.0`, or the range of several: `22.2 to 36.1`."""
    if comparison.measured is None:
        return ABSENT
    if among := comparison.among:
        return f"{figure(among.low)} to {figure(among.high)}"
    return figure(comparison.measured.value, half_width(comparison.measured.ci95))


def _runs_of(judged: Judgement) -> str:
    return str(len(judged.runs)) if judged.runs else ABSENT


_FIGURES: Final[Columns[Comparison]] = {
    "figure": lambda one: one.figure,
    "printed in": lambda one: one.where,
    "published": published,
    "measured ±": lambda one: f"{_measured(one)} {one.measured.unit}" if one.measured else ABSENT,
    "runs": _runs_behind,
    "ratio ±": lambda one: figure(one.ratio, half_width(one.ratio_ci95)),
    "verdict": _verdict,
}
_FINDINGS: Final[Columns[Judgement]] = {
    "finding": lambda one: one.finding.tested,
    "verdict": lambda one: f"{one.verdict}: {'; '.join(one.doubts)}" if one.doubts else one.verdict,
    "runs": _runs_of,
    "why": lambda one: one.why,
}
_PAGE_FIGURES: Final[Columns[Comparison]] = {
    "figure": lambda one: one.figure,
    "quantity": lambda one: one.metric.replace("_", " "),
    "unit": lambda one: one.unit,
    "of": lambda one: conditions(one.conditions),
    "published": lambda one: (
        "several" if one.published is None else f"{one.bound or ('≈' if one.approx else '')}{one.published}"
    ),
    "measured ±": _measured,
    "runs": _runs_behind,
    "ratio ±": lambda one: figure(one.ratio, half_width(one.ratio_ci95)),
    "verdict": lambda one: one.verdict,
    "why": lambda one: "; ".join(filter(None, (*one.doubts, ", ".join(_fields(one)), one.why))),
    "printed in": lambda one: one.where,
}
_PAGE_FINDINGS: Final[Columns[Judgement]] = {
    "finding": lambda one: one.finding.id,
    "says": lambda one: one.finding.tested,
    "verdict": lambda one: one.verdict,
    "runs": _runs_of,
    "why": lambda one: "; ".join((*one.doubts, one.why)),
    "printed in": lambda one: one.finding.where,
}
_PAGE_CELLS: Final[Columns[CellOutcome]] = {
    "cell": lambda cell: cell.id,
    "of": lambda cell: ", ".join(filter(None, (conditions(cell.where), cell.case))),
    "status": lambda cell: cell.status,
    "why": _reasons_of,
    "runs": _run_counts,
    "software": lambda cell: " and ".join(cell.software),
    "image": lambda cell: " and ".join(cell.images),
    "devices": lambda cell: " and ".join(cell.devices),
    "differs in": lambda cell: ", ".join(one.field.replace("_", " ") for one in cell.altered),
    "run directories": lambda cell: " ".join(cell.runs),
}


_TERMINAL_FIGURES: Final[Columns[Comparison]] = {
    "figure": lambda one: one.figure,
    "published": published,
    "measured ±": lambda one: f"{_measured(one)} {one.measured.unit if one.measured else ''}".removesuffix(
        f" {one.unit}"
    ),
    "ratio": lambda one: figure(one.ratio),
    "verdict": lambda one: one.verdict,
}
_TERMINAL_FINDINGS: Final[Columns[Judgement]] = {
    "verdict": lambda one: one.verdict,
    "finding": lambda one: one.finding.tested,
}
_STYLES: Final = {
    **dict.fromkeys(("holds", "reproduced", "shape agrees", "ran"), "green"),
    **dict.fromkeys(("does not hold", "differs", "shape differs"), "red"),
    **dict.fromkeys(("open", "undecided", "indicated", "not indicated"), "yellow"),
    "failed": "bold red",
}
_NO_WRAP: Final = frozenset({"runs", "published", "throughput ±", "measured ±", "ratio", "verdict"})
"""Columns of figures; their cells are never wrapped."""


def print_study(
    console: Console, study: Study, cells: Sequence[Cell], *, last: Reproduction | None, command: str
) -> None:
    """Print how much of a study can run here, by which command, and its latest results."""
    runs_here = any(cell.request for cell in cells)
    why = next((cell.why for cell in cells if cell.why), "no run is of it")
    lines = [f"{_count(cells)}: {command}" if runs_here else f"nothing of it can run here: {why}"]
    if last is None:
        lines.append("not run yet")
    else:
        on = place(last.machine, last.scale, last.cells)
        lines += [
            f"{last.made_at:%Y-%m-%d}, {on}",
            f"findings: {verdicts(last.judgements)}; figures: {verdicts(last.comparisons)}",
        ]
    console.print(Text.assemble((study.id, "bold"), f"  {study.title}"))
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2)))


def print_plan(
    console: Console, study: Study, cells: Sequence[Cell], *, machine: Machine, scale: Scale, whole: bool
) -> None:
    """Print how many runs of the source can run; if `whole`, also list them, those that can't, with reasons, and all differences from the source."""
    console.print(Text(study.title, style="bold"))
    console.print(Text(place(machine, scale)))
    there = differences(cells)
    if not whole:
        text = f"{_count(cells)}, with {len(there.rows)} differences from the source; --dry-run lists them"
        console.print(Text(text, style="dim"))
        return
    _print(console, plan(study, cells))
    if not_here := reasons(cells):
        console.print(Text("\nnot here:", style="bold"))
        for entry in not_here:
            console.print(Padding(Text(entry, style="dim"), (0, 0, 0, 2)))
    _print(console, there)


def print_reproduction(console: Console, reproduction: Reproduction, *, whole: Path) -> None:
    """Print what was measured and judged; the rest is only counted, and is listed in the file `whole`."""
    measured = tuple(one for one in reproduction.comparisons if one.measured)
    tested = tuple(one for one in reproduction.judgements if one.verdict != "not testable here")
    console.print()
    console.print(Text(reproduction.title, style="bold"))
    console.print(Text(place(reproduction.machine, reproduction.scale, reproduction.cells)))
    console.print(Text(outcome_text(reproduction), style="bold"))
    _print(console, runs(reproduction).without("software", "image"))
    _print(console, Table.from_entries(measured, _TERMINAL_FIGURES))
    _print(console, Table.from_entries(tested, _TERMINAL_FINDINGS))
    rest = {
        "figures that nothing was measured for": len(reproduction.comparisons) - len(measured),
        "findings that can't be tested here": len(reproduction.judgements) - len(tested),
        "runs that this hardware can't do": sum(cell.status == "skipped" for cell in reproduction.cells),
        "differences from the source": len(differences(reproduction.cells).rows),
    }
    counts = ", ".join(f"{what} {count}" for what, count in rest.items())
    console.print(Text(f"\nnot shown: {counts}; these and the reasons are in"))
    console.print(Text(str(whole)), soft_wrap=True)
    for note in reproduction.notes:
        console.print(Text(note, style="yellow"))


def _count(cells: Sequence[Cell]) -> str:
    """Count the runs that can run here: `10 of 30 runs can run here, and 5 smaller ones`."""
    own, smaller = runnable(cells)
    extra = f", and {smaller} smaller ones" if smaller else ""
    return f"{own} of {sum(not cell.extra for cell in cells)} runs can run here{extra}"


def _print(console: Console, table: Table) -> None:
    """Print a table unless it has no rows; statuses and verdicts are coloured."""
    if not table.rows:
        return
    drawn = plain_table()
    for column in table.columns:
        drawn.add_column(column, overflow="fold", no_wrap=column in _NO_WRAP)
    for row in table.rows:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell.partition(":")[0], "")) for cell in row))
    console.print(Padding(drawn, (1, 0, 0, 0), expand=False))
