"""The tables of a study: each published figure beside the measured one, each finding, what ran and what did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.report.block import ABSENT
from runner.report.figures import figure, half_width
from runner.report.page.model import Table
from runner.studies import words

if TYPE_CHECKING:
    from runner.published.model import Conditions
    from runner.studies.model import Comparison, Reproduction


def tables(reproduction: Reproduction) -> tuple[Table, ...]:
    """Those that have rows."""
    every = (_figures(reproduction), _findings(reproduction), _missing(reproduction), _cells(reproduction))
    return tuple(table for table in every if table.rows)


def conditions(where: Conditions) -> str:
    """What a source says of a figure in one line: `model resnet50, gpus 4`."""
    told = (
        f"{name.replace('_', ' ')} {value}" for name, value in where.stated.items() if name not in {"note", "versus"}
    )
    against = [f"{name.replace('_', ' ')} {value}" for name, value in _versus(where)]
    return ", ".join([*told, *([f"against {', '.join(against)}"] if against else [])])


def _versus(where: Conditions) -> list[tuple[str, str]]:
    if where.versus is None:
        return []
    return [(name, " or ".join(map(str, values))) for name, values in where.versus.stated.items()]


def _figures(reproduction: Reproduction) -> Table:
    return Table(
        title="Published figures",
        columns=(
            "figure",
            "quantity",
            "unit",
            "of",
            "published",
            "measured ±",
            "runs",
            "ratio ±",
            "verdict",
            "why",
            "printed in",
        ),
        rows=tuple(
            (
                one.figure,
                one.metric.replace("_", " "),
                one.unit,
                conditions(one.conditions),
                _printed(one),
                figure(one.measured.value, half_width(one.measured.ci95)) if one.measured else ABSENT,
                f"{one.measured.repeats:,}" if one.measured else ABSENT,
                figure(one.ratio, half_width(one.ratio_ci95)),
                one.verdict,
                "; ".join(word for word in (", ".join(one.fields), one.why or "") if word),
                one.where,
            )
            for one in reproduction.comparisons
        ),
        legend=words.LEGEND,
    )


def _printed(one: Comparison) -> str:
    if one.published is None:
        return "several"
    return f"{one.bound or ('≈' if one.approx else '')}{one.published}"


def _findings(reproduction: Reproduction) -> Table:
    return Table(
        title="Findings",
        columns=("finding", "says", "verdict", "why", "printed in"),
        rows=tuple(
            (one.finding.id, one.finding.says, one.verdict, one.why, one.finding.where)
            for one in reproduction.judgements
        ),
    )


def _missing(reproduction: Reproduction) -> Table:
    return Table(
        title="Quantities that could not be had",
        columns=("cell", "quantity", "why"),
        rows=tuple((one.cell, one.metric.replace("_", " "), one.why) for one in reproduction.missing),
    )


def _cells(reproduction: Reproduction) -> Table:
    return Table(
        title="Cells",
        columns=("cell", "of", "status", "why", "altered", "runs"),
        rows=tuple(
            (
                cell.id,
                ", ".join(word for word in (conditions(cell.where), cell.case or "") if word),
                cell.status,
                cell.why or "",
                "; ".join(f"{one.field}: {one.here} for {one.published}" for one in cell.altered),
                " ".join(cell.runs),
            )
            for cell in reproduction.cells
        ),
        legend="altered: what is different here from the source's run",
    )
