"""The tables of a study: each published figure beside the measured one, each finding, what ran and what did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.units import ABSENT, figure, half_width
from runner.experiments.studies import text
from runner.report.page.model import Table

if TYPE_CHECKING:
    from runner.experiments.studies.model import Comparison, Reproduction
    from runner.results.published.model import Conditions


def tables(reproduction: Reproduction) -> tuple[Table, ...]:
    """Those that have rows."""
    every = (
        _figures(reproduction),
        _findings(reproduction),
        _differences(reproduction),
        _missing(reproduction),
        _cells(reproduction),
    )
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
                text.runs_behind(one.measured),
                figure(one.ratio, half_width(one.ratio_ci95)),
                one.verdict,
                "; ".join(word for word in (*one.doubts, ", ".join(text.fields(one)), one.why or "") if word),
                one.where,
            )
            for one in reproduction.comparisons
        ),
        legend=text.LEGEND,
    )


def _printed(one: Comparison) -> str:
    if one.published is None:
        return "several"
    return f"{one.bound or ('≈' if one.approx else '')}{one.published}"


def _findings(reproduction: Reproduction) -> Table:
    return Table(
        title="Findings",
        columns=("finding", "says", "verdict", "runs", "why", "printed in"),
        rows=tuple(
            (
                one.finding.id,
                one.finding.says,
                one.verdict,
                str(len(one.runs)) if one.runs else ABSENT,
                "; ".join((*one.doubts, one.why)),
                one.finding.where,
            )
            for one in reproduction.judgements
        ),
        legend=text.INDICATED_LEGEND,
    )


def _differences(reproduction: Reproduction) -> Table:
    return Table(
        title="Differences from the source",
        columns=text.DIFFERENCES,
        rows=tuple(text.differences(reproduction.cells)),
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
        columns=(
            "cell",
            "of",
            "status",
            "why",
            "runs",
            "software",
            "image",
            "devices",
            "differs in",
            "run directories",
        ),
        rows=tuple(
            (
                cell.id,
                ", ".join(word for word in (conditions(cell.where), cell.case or "") if word),
                cell.status,
                text.reasons_of(cell),
                text.processes(cell),
                " and ".join(cell.software),
                " and ".join(cell.images),
                " and ".join(cell.devices),
                ", ".join(one.field.replace("_", " ") for one in cell.altered),
                " ".join(cell.runs),
            )
            for cell in reproduction.cells
        ),
        legend="runs: those that may be used; software, image, devices: by the records of the runs",
    )
