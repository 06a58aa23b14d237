"""What the page opens with: how many runs of which validity, on which machines, and the most that each network came to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from runner.analysis.comparisons.cells import cells
from runner.analysis.summarize import machine, mode_in_words
from runner.core import units
from runner.core.trial import Trial
from runner.core.units import ABSENT
from runner.report import figures
from runner.report.comparison import anchor
from runner.report.page import runs as lines
from runner.report.page.model import Block, Count, Figure, Series, Table, bounds, error_bars

if TYPE_CHECKING:
    from runner.analysis.comparisons.cells import Cell
    from runner.core.record import RunRecord

MOST = 40
"""Lines of a table here; the table of all runs has the rest."""
BARS = 12


def counts(records: Sequence[RunRecord], *, studies: int) -> tuple[Count, ...]:
    """How many there are of what."""
    measured = [record for record in records if not record.profiled]
    by_status = {
        status: sum(lines.status(record) == status for record in measured)
        for status in ("valid", "degraded", "invalid", "failed")
    }
    return (
        Count(words="runs", number=len(measured)),
        *(Count(words=status, number=number) for status, number in by_status.items()),
        Count(words="passes under a profiler", number=len(records) - len(measured)),
        Count(words="studies", number=studies),
    )


def overview(records: Sequence[RunRecord], *, folders: Sequence[str] = ()) -> Block:
    """Folders, machines, frameworks, the fastest cell of each network, and frameworks beside each other.

    Args:
        records: all.
        folders: (records,) where each lies; nothing is said of a single one.
    """
    found = cells(records)
    every = (
        _fastest(found),
        *([_of("folder", folders, records)] if len(set(folders)) > 1 else []),
        _of("machine", [machine(record) for record in records], records),
        _of("framework", [lines.framework(record) for record in records], records),
    )
    return Block(
        anchor="overview",
        title="Overview",
        lead="",
        figures=tuple(_frameworks(found)),
        tables=tuple(table for table in every if table.rows),
    )


def _of(name: str, values: Sequence[str], records: Sequence[RunRecord]) -> Table:
    """How many runs of which validity there are of each folder, machine or framework; `values` has that of each record."""
    groups: dict[str, list[RunRecord]] = {}
    for value, record in zip(values, records, strict=True):
        groups.setdefault(value, []).append(record)
    statuses = ("valid", "degraded", "invalid", "failed")
    return Table(
        title=f"By {name}",
        columns=(name, "runs", *statuses),
        rows=tuple(
            (
                group,
                f"{len(own):,}",
                *(f"{sum(lines.status(record) == status for record in own):,}" for status in statuses),
            )
            for group, own in sorted(groups.items())
        ),
    )


def _fastest(found: Iterable[Cell]) -> Table:
    """The cell with the highest throughput of each network on so many devices of each kind."""
    best: dict[tuple[str, ...], Cell] = {}
    for cell in found:
        record = cell.record
        key = (machine(record), _network(record), lines.devices(record), cell.row.unit)
        if key not in best or cell.rate > best[key].rate:
            best[key] = cell
    ordered = sorted(
        best.values(),
        key=lambda one: (machine(one.record), _network(one.record), one.row.scale, lines.devices(one.record)),
    )
    more = f"; {len(ordered) - MOST:,} more networks are in the table of all runs" if len(ordered) > MOST else ""
    return Table(
        title="Fastest cell of each network",
        columns=(
            *("machine", "network", "devices", "framework", "cell", "runs", "throughput ±", "speedup ±", "validity"),
            "made from",
        ),
        rows=tuple(_fast(cell) for cell in ordered[:MOST]),
        legend=(
            "cell: one training in one setting, all its usable runs pooled (samples ÷ seconds); of the cells of a network on as many devices the "
            f"one with the highest pooled throughput; {units.PLUS_MINUS}; batch: of one device{more}"
        ),
    )


def _fast(cell: Cell) -> tuple[str, ...]:
    record, row = cell.record, cell.row
    return (
        machine(record),
        _network(record),
        lines.devices(record),
        lines.framework(record),
        cell.setting or ABSENT,
        figures.runs(row),
        f"{units.figure(row.throughput, units.half_width(row.throughput_ci95))} {row.unit}",
        units.figure(row.speedup, units.half_width(row.speedup_ci95)),
        row.status,
        " ".join(cell.runs),
    )


def _network(record: RunRecord) -> str:
    trial = record.trial
    return f"{trial.model}{_size(trial)} {mode_in_words(record)}" if isinstance(trial, Trial) else trial.name


def _frameworks(found: Iterable[Cell]) -> Iterable[Figure]:
    """Frameworks beside each other where they trained the same network alike: a bar for the fastest cell of each."""
    groups: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in found:
        record, trial = cell.record, cell.record.trial
        if not isinstance(trial, Trial) or trial.nodes > 1:
            continue
        alike: tuple[str, ...] = (
            machine(record),
            f"{trial.model}{_size(trial)}",
            mode_in_words(record),
            trial.precision,
            f"batch {trial.batch_per_device}",
            lines.devices(record),
            "synthetic data" if trial.dataset is None else "images of a data set",
        )
        name = ", ".join((lines.framework(record), trial.way, *trial.techniques))
        own = groups.setdefault(alike, {})
        if name not in own or cell.rate > own[name].rate:
            own[name] = cell
    for alike, own in groups.items():
        if len({cell.record.trial.framework for cell in own.values() if isinstance(cell.record.trial, Trial)}) > 1:
            yield _beside(alike, own)


def _beside(alike: Sequence[str], own: dict[str, Cell]) -> Figure:
    names = sorted(own, key=lambda name: -own[name].rate)[:BARS]
    rows = [own[name].row for name in names]
    low, high = bounds([row.throughput_ci95 for row in rows])
    series = Series(
        name="measured",
        x=tuple(names),
        y=tuple(row.throughput for row in rows),
        low=low,
        high=high,
        degraded=tuple(row.status == "degraded" for row in rows),
        runs=tuple(own[name].runs for name in names),
    )
    place, network, mode, precision, batch, devices, data = alike
    return Figure(
        name=anchor("frameworks", *alike),
        title=f"Frameworks beside each other, {network} on {devices}",
        shape="lying",
        x="framework",
        y=f"throughput ({rows[0].unit})",
        series=(series,),
        interval=error_bars(series),
        notes=(f"{place}: {mode}, {precision}, {batch}, {data}; all usable runs of a cell pooled",),
    )


def _size(trial: Trial) -> str:
    return f" {trial.image_shape[1]}×{trial.image_shape[2]}" if trial.image_shape else ""
