"""Matrices, their transports and passes under a profiler as blocks of the page, with the tables that the other reports have of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from runner.analysis.comparisons.transports import Curve
from runner.analysis.summarize import Summary
from runner.core.record import RunRecord
from runner.report import matrix, telemetry, transports
from runner.report.page import figures as drawn
from runner.report.page import figures as over
from runner.report.page.figures import Watched
from runner.report.page.model import Block, anchor
from runner.report.page.overview import one_scale
from runner.report.publish import Measured


def curves(measured: Measured, *, name: str, watched: Mapping[str, Watched]) -> tuple[Block, ...]:
    """A block for each scaling curve of a matrix; `watched` is what samplers saw, by the label of the curve, "" where there is one."""
    return tuple(
        _curve(
            curve,
            summary,
            name=f"{name}-{curve.slug}" if measured.comparison else name,
            watched=watched.get(curve.label),
        )
        for curve, summary in measured.curves
    )


def comparison(measured: Measured, *, name: str) -> tuple[Block, ...]:
    """The block of a matrix over several transports; none of one over a single one."""
    if measured.comparison is None:
        return ()
    own = {(curve.label, scale): ids for curve, _ in measured.curves for scale, ids in _ids(curve.own).items()}
    block = transports.report(measured.comparison, name=f"{name}-transports", runs=own).page_block()
    return (block.model_copy(update={"stem": name}),)


def _ids(runs: Iterable[tuple[Path, RunRecord]]) -> dict[int, tuple[str, ...]]:
    """By scale, the ids of its runs."""
    found: dict[int, tuple[str, ...]] = {}
    for _, record in runs:
        scale = record.trial.world_size
        found[scale] = (*found.get(scale, ()), record.run_id)
    return found


def _curve(curve: Curve, summary: Summary, *, name: str, watched: Watched | None) -> Block:
    records = [record for _, record in curve.runs]
    label = f": {curve.label}" if curve.label else ""
    return Block(
        anchor=anchor("matrix", name),
        title=f"{summary.title}{label}",
        lead=_lead(summary),
        lines=(
            summary.setting,
            *filter(None, (summary.wires, summary.engine_reason)),
            summary.ran_on,
            matrix.interval_legend(summary),
            *matrix.peak_legend(summary),
        ),
        figures=(
            *drawn.scaling(summary, name=name, runs=_ids(curve.runs)),
            *(over.over_time(watched, name=name, title=summary.title) if watched else ()),
            *over.over_epochs(records, name=name, title=summary.title),
        ),
        tables=(
            matrix.scaling(summary),
            *filter(None, (matrix.parts(summary),)),
            *telemetry.tables(summary),
        ),
        notes=(*matrix.notes(summary), *telemetry.notes(summary)),
        runs=tuple(record.run_id for record in records),
        stem=name,
        empty=one_scale(summary),
    )


def _lead(summary: Summary) -> str:
    """What came of the largest scale that may be used."""
    usable = [row for row in summary.rows if row.usable and row.throughput is not None]
    if not usable:
        return f"no usable run: {', '.join(sorted({row.status for row in summary.rows}))}"
    return matrix.told(max(usable, key=lambda row: row.scale))
