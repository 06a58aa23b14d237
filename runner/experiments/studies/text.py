"""A plan and a reproduction in words: rows of text that the terminal and Markdown have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from runner.core.measurement import FEWEST_RUNS, Interval
from runner.core.units import PLUS_MINUS
from runner.experiments.studies.model import (
    Cell,
    CellOutcome,
    Comparison,
    Judgement,
    Machine,
    Observation,
    Reproduction,
)
from runner.experiments.studies.study import Study

ABSENT: Final = "\N{EN DASH}"
FIGURES: Final = ("figure", "printed in", "published", "measured ±", "runs", "ratio ±", "verdict")
FINDINGS: Final = ("finding", "verdict", "runs", "why")
CELLS: Final = ("run", "throughput ±", "runs", "software", "image", "status")
DIFFERENCES: Final = ("differs in", "source", "here", "of")
PLAN: Final = ("block", "what", "runs", "here")
STUDIES: Final = ("study", "what", "runs", "here", "differences")
LEGEND: Final = f"{PLUS_MINUS}; ratio: measured ÷ published; a figure that differs from the source's run in anything is not reproduced"
INDICATED_LEGEND: Final = f"indicated, not indicated: seen, or not, but on degraded runs, on fewer than {FEWEST_RUNS} of a cell, or without an interval"

Row = tuple[str, ...]


def plan(study: Study, cells: Sequence[Cell]) -> list[Row]:
    """One row a block: how many runs the source has, and how many of them, or beside them, run here."""
    rows: list[Row] = []
    for block in study.blocks:
        own = [cell for cell in cells if cell.block == block.id]
        if own:
            rows.append((block.id, block.says, str(sum(not cell.extra for cell in own)), _here(own)))
    return rows


def reasons(cells: Sequence[Cell | CellOutcome]) -> list[str]:
    """Why some don't run, each reason once, with the runs that it is of."""
    return _grouped((cell.why, cell.id) for cell in cells if cell.why)


def differences(cells: Sequence[Cell | CellOutcome]) -> list[Row]:
    """Where the runs differ from the source's, each difference once, with the blocks that it is of."""
    by_block: dict[Row, dict[str, None]] = {}
    for cell in cells:
        for one in cell.altered if _has_run(cell) else ():
            by_block.setdefault((cell.block, one.field.replace("_", " "), one.published), {})[one.here] = None
    found: dict[Row, list[str]] = {}
    for (block, *there), here in by_block.items():
        found.setdefault((*there, ", ".join(here)), []).append(block)
    return [(*difference, ", ".join(blocks)) for difference, blocks in found.items()]


def _has_run(cell: Cell | CellOutcome) -> bool:
    """Whether it ran, or is going to."""
    return not cell.why if isinstance(cell, Cell) else cell.status == "ran"


def where(machine: Machine, scale: str, cells: Sequence[CellOutcome] = ()) -> str:
    """`small, on vm: AMD EPYC, 2 CPU cores for GPUs`; of cells that ran, the devices that their records have."""
    ran = dict.fromkeys(device for cell in cells for device in cell.devices)
    instead = "" if machine.device == "gpu" else " in place of GPUs"
    if ran:
        return f"{scale}, on {machine.name}: {' and '.join(ran)}{instead}"
    nodes = f" of {len(machine.devices)} nodes" if len(machine.devices) > 1 else ""
    return f"{scale}, on {machine.name}: {machine.device_name}, {machine.in_words}{instead}{nodes}"


def studies(name: str, title: str, cells: Sequence[Cell]) -> Row:
    """One row of the list of studies."""
    return name, title, str(sum(not cell.extra for cell in cells)), _here(cells), str(len(differences(cells)))


def figures(reproduction: Reproduction) -> list[Row]:
    """Published beside measured."""
    return [
        (
            comparison.figure,
            comparison.where,
            _published(comparison),
            _amount(comparison.measured) if comparison.measured else ABSENT,
            runs_behind(comparison.measured),
            _ratio(comparison.ratio, comparison.ratio_ci95),
            _verdict(comparison),
        )
        for comparison in reproduction.comparisons
    ]


def fields(comparison: Comparison) -> tuple[str, ...]:
    """In what a figure's runs differ, as people write it."""
    return tuple(field.replace("_", " ") for field in comparison.fields)


def findings(reproduction: Reproduction) -> list[Row]:
    """What became of each conclusion."""
    return [
        (
            judged.finding.says,
            f"{judged.verdict}: {'; '.join(judged.doubts)}" if judged.doubts else judged.verdict,
            str(len(judged.runs)) if judged.runs else ABSENT,
            judged.why,
        )
        for judged in reproduction.judgements
    ]


def runs(reproduction: Reproduction) -> list[Row]:
    """Every run of the source that was run, failed or was not come to, with its throughput, and what it ran in."""
    rates = {
        observed.runs: observed
        for observed in reproduction.observations
        if observed.metric == "throughput" and observed.iterations is None
    }
    rows: list[Row] = []
    for cell in reproduction.cells:
        if cell.status != "skipped":
            rate = next((rates[ids] for ids in rates if set(ids) <= set(cell.runs) and ids), None)
            rows.append(
                (
                    cell.id,
                    _amount(rate) if rate else ABSENT,
                    processes(cell),
                    " and ".join(cell.software) or ABSENT,
                    " and ".join(cell.images) or ABSENT,
                    f"{cell.status}: {why}" if (why := reasons_of(cell)) else cell.status,
                )
            )
    return rows


def runs_behind(measured: Observation | None) -> str:
    """How many runs of a cell a figure rests on: `3`, `3, 1 degraded`."""
    if measured is None:
        return ABSENT
    return f"{measured.repeats}, {measured.degraded} degraded" if measured.degraded else str(measured.repeats)


def processes(cell: CellOutcome) -> str:
    """How many runs of a cell may be used, and passes under a profiler beside them: `3`, `1 and 2 passes`, `1 pass`."""
    passes = f"{cell.passes} pass{'' if cell.passes == 1 else 'es'}" if cell.passes else ""
    return " and ".join(word for word in (str(cell.measured) if cell.measured else "", passes) if word) or ABSENT


def reasons_of(cell: CellOutcome) -> str:
    """Why it failed or was not run, and how many of its runs are degraded, with their reasons."""
    degraded = f"{cell.degraded} degraded ({'; '.join(cell.doubts)})" if cell.degraded else ""
    return "; ".join(word for word in (cell.why or "", degraded) if word)


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


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for what, of in pairs:
        groups.setdefault(what, []).append(of)
    return [f"{what}: {', '.join(dict.fromkeys(names))}" for what, names in groups.items()]


def _published(comparison: Comparison) -> str:
    if comparison.published is None:
        return "several values"
    sign = f"{comparison.bound} " if comparison.bound else "about " if comparison.approx else ""
    return f"{sign}{comparison.published} {comparison.unit}"


def _amount(observed: Observation) -> str:
    half = f" ± {_number(observed.ci95.half_width)}" if observed.ci95 else ""
    return f"{_number(observed.value)}{half} {observed.unit}"


def _ratio(value: float | None, ci95: Interval | None) -> str:
    if value is None:
        return ABSENT
    return f"{_number(value)} ± {_number(ci95.half_width)}" if ci95 else _number(value)


def _verdict(comparison: Comparison) -> str:
    if comparison.fields or comparison.doubts:
        return f"{comparison.verdict}: {'; '.join((*comparison.doubts, *fields(comparison)))}"
    needs_why = comparison.verdict == "not measured" and comparison.why
    return f"{comparison.verdict}: {comparison.why}" if needs_why else comparison.verdict


def _number(value: float) -> str:
    """Three digits that count: 0.0123, 1.23, 12.3, 1,230."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - more digits than count
