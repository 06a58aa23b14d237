"""A plan and a reproduction in words: rows of text that the terminal and Markdown have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from runner.grading.model import Interval
from runner.report.figures import PLUS_MINUS
from runner.studies.model import Altered, Cell, CellOutcome, Comparison, Judgement, Machine, Observation, Reproduction
from runner.studies.study import Study

ABSENT: Final = "\N{EN DASH}"
FIGURES: Final = ("figure", "printed in", "published", "measured ±", "runs", "ratio ±", "verdict")
FINDINGS: Final = ("finding", "verdict", "why")
CELLS: Final = ("cell", "runs", "throughput ±", "status")
PLAN: Final = ("block", "what", "runs", "here")
STUDIES: Final = ("study", "what", "runs", "here")
LEGEND: Final = f"{PLUS_MINUS}; ratio: measured ÷ published"

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


def changes(cells: Sequence[Cell | CellOutcome]) -> list[str]:
    """What is changed, each change once, with the blocks that it is of."""
    running = [cell for cell in cells if not cell.why]
    return _grouped((_change(altered), cell.block) for cell in running for altered in cell.altered)


def where(machine: Machine, scale: str) -> str:
    """`small, on vm: AMD EPYC, 2 CPU cores for GPUs`."""
    instead = "" if machine.device == "gpu" else " in place of GPUs"
    nodes = f" of {len(machine.devices)} nodes" if len(machine.devices) > 1 else ""
    return f"{scale}, on {machine.name}: {machine.device_name}, {machine.in_words}{instead}{nodes}"


def studies(name: str, title: str, cells: Sequence[Cell]) -> Row:
    """One row of the list of studies."""
    return name, title, str(sum(not cell.extra for cell in cells)), _here(cells)


def figures(reproduction: Reproduction) -> list[Row]:
    """Published beside measured."""
    return [
        (
            comparison.figure,
            comparison.where,
            _published(comparison),
            _amount(comparison.measured) if comparison.measured else ABSENT,
            _runs(comparison.measured),
            _ratio(comparison.ratio, comparison.ratio_ci95),
            _verdict(comparison),
        )
        for comparison in reproduction.comparisons
    ]


def findings(reproduction: Reproduction) -> list[Row]:
    """What became of each conclusion."""
    return [(judged.finding.says, judged.verdict, judged.why) for judged in reproduction.judgements]


def runs(reproduction: Reproduction) -> list[Row]:
    """Every run of the source that was run, failed or was not come to, with its throughput."""
    rates = {
        observed.runs: observed
        for observed in reproduction.observations
        if observed.metric == "throughput" and observed.iterations is None
    }
    rows: list[Row] = []
    for cell in reproduction.cells:
        if cell.status != "skipped":
            rate = next((rates[ids] for ids in rates if set(ids) <= set(cell.runs) and ids), None)
            status = cell.status if not cell.why else f"{cell.status}: {cell.why}"
            rows.append((cell.id, _runs(rate), _amount(rate) if rate else ABSENT, status))
    return rows


def counted(judgements: Sequence[Judgement], comparisons: Sequence[Comparison]) -> str:
    """`12 findings hold, 3 do not, 22 can't be tested here; of 31 figures 2 agree in shape and 29 can't be compared`."""
    of_findings = [judged.verdict for judged in judgements]
    told = (
        f"{of_findings.count('holds')} of {len(of_findings)} findings hold, {of_findings.count('does not hold')} do not, "
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


def _change(altered: Altered) -> str:
    # A length has its unit with it: `4,000 iterations`.
    name = "" if altered.field == "iterations" else f"{altered.field.replace('_', ' ')} "
    return f"{name}{altered.published} \N{RIGHTWARDS ARROW} {altered.here}"


def _published(comparison: Comparison) -> str:
    if comparison.published is None:
        return "several values"
    sign = f"{comparison.bound} " if comparison.bound else "about " if comparison.approx else ""
    return f"{sign}{comparison.published} {comparison.unit}"


def _runs(observed: Observation | None) -> str:
    return f"{observed.repeats:,}" if observed else ABSENT


def _amount(observed: Observation) -> str:
    half = f" ± {_number(observed.ci95.half_width)}" if observed.ci95 else ""
    return f"{_number(observed.value)}{half} {observed.unit}"


def _ratio(value: float | None, ci95: Interval | None) -> str:
    if value is None:
        return ABSENT
    return f"{_number(value)} ± {_number(ci95.half_width)}" if ci95 else _number(value)


def _verdict(comparison: Comparison) -> str:
    if comparison.fields:
        return f"{comparison.verdict}: {'; '.join(comparison.fields)}"
    needs_why = comparison.verdict == "not measured" and comparison.why
    return f"{comparison.verdict}: {comparison.why}" if needs_why else comparison.verdict


def _number(value: float) -> str:
    """Three digits that count: 0.0123, 1.23, 12.3, 1,230."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - more digits than count
