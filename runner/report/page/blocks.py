"""Matrices, comparisons, sweeps and passes under a profiler as blocks of the page, with the tables that the other reports have of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.analysis.comparisons.cross_check import INCOMPARABLE
from runner.analysis.summarize import summarize
from runner.core import units
from runner.core.trial import title
from runner.report import (
    ablation,
    cross_check,
    devices,
    figures,
    inputs,
    networks,
    pass_notes,
    profile,
    strategies,
    telemetry,
    transports,
)
from runner.report import sweep as sweeping
from runner.report.page import curves as over
from runner.report.page import figures as drawn
from runner.report.page.model import Block, Table

if TYPE_CHECKING:
    from runner.analysis.comparisons.ablation import Ablation, Line
    from runner.analysis.comparisons.alike import TrainingReport
    from runner.analysis.comparisons.cross_check import CrossCheck, EngineRow
    from runner.analysis.comparisons.devices import Devices
    from runner.analysis.comparisons.inputs import InputReport, Source
    from runner.analysis.comparisons.networks import Networks
    from runner.analysis.comparisons.strategies import Strategies, Way
    from runner.analysis.comparisons.sweeps import Sweep
    from runner.analysis.comparisons.transports import Comparison, Curve
    from runner.analysis.summary import Row, Summary
    from runner.core.record import RunRecord
    from runner.report.block import Block as Laid
    from runner.report.page.model import Figure
    from runner.report.publish import Measured, Watched


def anchor(*words: str) -> str:
    """An id within the page, of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


def matrix(measured: Measured, *, name: str, watched: Mapping[str, Watched]) -> tuple[Block, ...]:
    """A block for each scaling curve of a matrix.

    Args:
        measured: its runs and figures.
        name: of the matrix, which begins the names of its figures.
        watched: what samplers saw, by the label of the curve; "" where there is one.
    """
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
    compared = measured.comparison
    if compared is None:
        return ()
    own: dict[tuple[str, int], tuple[str, ...]] = {}
    for curve, _ in measured.curves:
        for _, record in curve.own:
            place = (curve.label, record.trial.world_size)
            own[place] = (*own.get(place, ()), record.run_id)
    return (
        Block(
            anchor=anchor(name, "transports"),
            title=f"{compared.title}: transports",
            lead=_compared_lead(compared),
            lines=(compared.setting, compared.ground, transports.legend(compared)),
            figures=drawn.transports(compared, name=f"{name}-transports", runs=own),
            tables=(
                Table(
                    title="Transports",
                    columns=transports.headers(compared),
                    rows=transports.rows(compared),
                ),
            ),
            notes=transports.notes(compared),
            runs=tuple(dict.fromkeys(run for runs in own.values() for run in runs)),
            stem=name,
        ),
    )


def batches(sweep: Sweep) -> Block:
    """The block of a sweep over the batch."""
    columns = sweeping.columns(sweep)
    rates = [point for point in sweep.points if point.throughput is not None]
    best = max(rates, key=lambda point: point.throughput or 0.0, default=None)
    lead = f"{len(sweep.points)} points"
    if best:
        lead += f"; most at batch {best.batch}, {best.precision}: {units.figure(best.throughput)} {sweep.unit}"
    return Block(
        anchor=anchor(sweep.name),
        title=f"{sweep.title}: sweep over the batch",
        lead=lead,
        lines=(sweep.setting, sweep.ground, sweeping.legend(sweep)),
        figures=drawn.against_batch(sweep),
        tables=(
            Table(
                title="Sweep over the batch",
                columns=tuple(columns),
                rows=tuple(zip(*columns.values(), strict=True)),
            ),
        ),
        notes=sweep.notes,
        runs=tuple(dict.fromkeys(run for point in sweep.points for run in point.runs)),
        stem=sweep.name,
    )


def fed(found: InputReport) -> Block:
    """The block of a training on synthetic images and on real ones."""
    real = [source for source in found.sources if source.ratio is not None]
    best = max(real, key=lambda source: source.ratio or 0.0, default=None)
    lead = "no usable run"
    if best:
        lead = f"{best.label}: {units.figure(best.ratio, units.half_width(best.ratio_ci95))} of synthetic images"
    return _of_training(
        found,
        "input",
        inputs.block(found),
        heading="Input",
        lead=lead,
        legend=inputs.LEGEND,
        drawings=drawn.by_input(found),
        rows=found.sources,
    )


def faster(found: Ablation) -> Block:
    """The block of a training with more and more techniques."""
    best = max(
        (line for line in found.lines if line.ratio is not None), key=lambda line: line.ratio or 0.0, default=None
    )
    lead = "no usable run"
    if best:
        lead = f"{units.figure(best.ratio, units.half_width(best.ratio_ci95))} × the first line with all above it to: {best.label}"
    return _of_training(
        found,
        "ablation",
        ablation.block(found),
        heading="Techniques",
        lead=lead,
        legend=ablation.LEGEND,
        drawings=drawn.by_technique(found),
        rows=found.lines,
    )


def checked(found: CrossCheck) -> Block:
    """The block of a training by several engines."""
    compared = [row for row in found.rows if row.ratio is not None]
    lead = "no usable run"
    if any(row.differs for row in found.rows):
        lead = INCOMPARABLE
    if compared:
        lead = _ratios(compared, found.bare)
    return _of_training(
        found,
        "engines",
        cross_check.block(found),
        heading="Engines",
        lead=lead,
        legend=cross_check.LEGEND,
        drawings=drawn.by_engine(found),
        rows=found.rows,
    )


def ways(found: Strategies) -> Block:
    """The block of a training in several ways."""
    lead = _ratios([way for way in found.ways if way.ratio is not None], found.ways[0].label) or "no usable run"
    return _of_training(
        found,
        "strategies",
        strategies.block(found),
        heading="Strategies",
        lead=lead,
        legend=strategies.LEGEND,
        drawings=drawn.by_strategy(found),
        rows=found.ways,
    )


def _ratios(rows: Sequence[EngineRow | Way], base: str) -> str:
    return "; ".join(
        f"{row.label}: {units.figure(row.ratio, units.half_width(row.ratio_ci95))} of {base}" for row in rows
    )


def _of_training(
    found: TrainingReport,
    what: str,
    table: Laid,
    *,
    heading: str,
    lead: str,
    legend: str,
    drawings: tuple[Figure, ...],
    rows: Sequence[Source | Line | EngineRow | Way],
) -> Block:
    """The block of one training in several settings, each with the ids of its runs."""
    return Block(
        anchor=anchor(found.name),
        title=f"{found.title}: {what}",
        lead=lead,
        lines=(found.setting, found.ground, legend),
        figures=drawings,
        tables=(Table(title=heading, columns=table.headers, rows=table.rows),),
        notes=found.notes,
        runs=tuple(dict.fromkeys(run for row in rows for run in row.runs)),
        stem=found.name,
    )


def several(found: Networks) -> Block:
    """The block of networks that were trained alike on one device and on more."""
    table = networks.block(found)
    ends = [(network, network.rows[-1]) for network in found.networks if network.rows[-1].efficiency is not None]
    lead = "; ".join(
        f"{one.label}: {units.figure(100 * (row.efficiency or 0))} % on {row.devices}" for one, row in ends
    )
    return Block(
        anchor=anchor(found.name),
        title=f"{found.title}: scaling",
        lead=lead or "no usable run on several devices",
        lines=(*found.how, found.ground, networks.LEGEND),
        figures=drawn.by_network(found),
        tables=(Table(title="Networks", columns=table.headers, rows=table.rows),),
        notes=found.notes,
        runs=tuple(run for network in found.networks for own in network.runs for run in own),
        stem=found.name,
    )


def apart(found: Devices) -> Block:
    """The block of what ran on several GPUs of a kind, each by itself."""
    tables = {"Trainings": devices.trainings(found), "GPUs": devices.standings(found)}
    return Block(
        anchor=anchor(found.name),
        title=f"{found.title}: devices",
        lead=found.lead,
        lines=(found.ground, devices.LEGEND, devices.STANDINGS_LEGEND),
        tables=tuple(Table(title=name, columns=table.headers, rows=table.rows) for name, table in tables.items()),
        runs=tuple(run for training in found.trainings for run in training.runs),
        stem=found.name,
    )


def profiled(run: tuple[Path, RunRecord]) -> tuple[Block, ...]:
    """The block of a pass under a profiler; none of one that may not be used."""
    _, record = run
    if record.profile is None or record.validity.status == "invalid":
        return ()
    summary = summarize([run])
    what = title(record.trial)
    first, *more = profile.summary(record.profile)
    return (
        Block(
            anchor=anchor(record.run_id),
            title=what,
            lead=first,
            lines=(*more, summary.setting, summary.ran_on),
            figures=drawn.time_shares(record, title=what),
            tables=tuple(
                Table(title=part.title, columns=part.columns, rows=part.rows, legend=part.legend)
                for part in profile.sections(record.profile)
            ),
            notes=(
                *pass_notes.reservations(record),
                *pass_notes.sampled(record),
                *profile.unavailable(record.profile),
            ),
            runs=(record.run_id,),
            stem=record.run_id,
        ),
    )


def _curve(curve: Curve, summary: Summary, *, name: str, watched: Watched | None) -> Block:
    by_scale: dict[int, tuple[str, ...]] = {}
    for _, record in curve.runs:
        scale = record.trial.world_size
        by_scale[scale] = (*by_scale.get(scale, ()), record.run_id)
    records = [record for _, record in curve.runs]
    label = f": {curve.label}" if curve.label else ""
    ends = (summary.wires, summary.engine_reason)
    return Block(
        anchor=anchor("matrix", name),
        title=f"{summary.title}{label}",
        lead=_lead(summary),
        lines=(
            summary.setting,
            *(line for line in ends if line),
            summary.ran_on,
            figures.interval_legend(summary),
            *figures.peak_legend(summary),
        ),
        figures=(
            *drawn.scaling(summary, name=name, runs=by_scale),
            *(over.over_time(watched, name=name, title=summary.title) if watched else ()),
            *over.over_epochs(records, name=name, title=summary.title),
        ),
        tables=tuple(_tables(summary)),
        notes=(*figures.notes(summary), *telemetry.notes(summary)),
        runs=tuple(record.run_id for record in records),
        stem=name,
    )


def _tables(summary: Summary) -> list[Table]:
    mfu = summary.peak is not None
    found = [
        Table(
            title="Scaling",
            columns=figures.headers(summary).in_order(),
            rows=tuple(figures.cells(row, mfu=mfu).in_order() for row in summary.rows),
        )
    ]
    if parts := figures.parts(summary):
        found.append(
            Table(title="Parts of a step", columns=parts.headers, rows=parts.rows, legend=figures.PARTS_LEGEND)
        )
    found += [
        Table(title=f"Telemetry by {block.headers[0]}", columns=block.headers, rows=block.rows, legend=telemetry.LEGEND)
        for block in telemetry.blocks(summary)
    ]
    return found


def _lead(summary: Summary) -> str:
    """What came of the largest scale that may be used."""
    usable = [row for row in summary.rows if row.usable and row.throughput is not None]
    if not usable:
        return f"no usable run: {', '.join(sorted({row.status for row in summary.rows}))}"
    return told(max(usable, key=lambda row: row.scale))


def told(row: Row) -> str:
    """One scale in a line: throughput, devices, speedup, validity."""
    rate = units.estimate(row.throughput, row.throughput_ci95, runs=row.repeats)
    words = [f"{rate} {row.unit} on {row.devices}"]
    if row.speedup is not None and row.scale > 1:
        words.append(f"speedup {units.figure(row.speedup, units.half_width(row.speedup_ci95))}")
    return ", ".join([*words, row.status])


def _compared_lead(compared: Comparison) -> str:
    rates = [row for row in compared.rows if row.row.usable and row.row.throughput is not None]
    if not rates:
        return "no usable run"
    fastest = max(rates, key=lambda row: row.row.throughput or 0.0)
    return f"fastest over {fastest.transport}: {told(fastest.row)}"
