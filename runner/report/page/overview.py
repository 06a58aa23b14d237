"""What the page opens with: how many runs of which validity, on which machines, and the most that each network came to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from runner.report import figures
from runner.report.block import ABSENT
from runner.report.page import runs as lines
from runner.report.page.blocks import anchor
from runner.report.page.model import Block, Count, Figure, Series, Table
from runner.summarize import machine, mode_in_words
from runner.trial import Trial

if TYPE_CHECKING:
    from runner.results import RunRecord

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
    """Folders, machines, frameworks, the fastest run of each network, and frameworks beside each other.

    Args:
        records: all.
        folders: (records,) where each lies; nothing is said of a single one.
    """
    usable = [
        record
        for record in records
        if record.validity.status != "invalid"
        and not (record.profiled or record.concurrent)
        and record.measurement.throughput
    ]
    every = (
        _fastest(usable),
        *([_of("folder", folders, records)] if len(set(folders)) > 1 else []),
        _of("machine", [machine(record) for record in records], records),
        _of("framework", [lines.framework(record) for record in records], records),
    )
    return Block(
        anchor="overview",
        title="Overview",
        lead="",
        figures=tuple(_frameworks(usable)),
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


def _fastest(usable: Iterable[RunRecord]) -> Table:
    """The run with the highest throughput of each network on each machine."""
    best: dict[tuple[str, ...], RunRecord] = {}
    for record in usable:
        trial = record.trial
        what = (trial.model, mode_in_words(record), _size(trial)) if isinstance(trial, Trial) else (trial.key,)
        key = (machine(record), *what)
        if key not in best or _rate(record) > _rate(best[key]):
            best[key] = record
    found = sorted(best.values(), key=lambda record: (machine(record), -_rate(record)))[:MOST]
    return Table(
        title="Fastest usable run of each network on each machine",
        columns=("machine", "network", "framework", "devices", "batch", "throughput ±", "speedup ±", "validity", "run"),
        rows=tuple(_fast(record) for record in found),
        legend="± = half the width of the 95 % bootstrap interval over the windows of that run; batch: of one device",
    )


def _fast(record: RunRecord) -> tuple[str, ...]:
    trial, rate, speedup = record.trial, record.measurement.throughput, record.scaling.speedup
    network = (
        f"{trial.model}{_size(trial)} {mode_in_words(record)}, {trial.precision}"
        if isinstance(trial, Trial)
        else trial.name
    )
    return (
        machine(record),
        network,
        lines.framework(record),
        lines.devices(record),
        ABSENT if trial.batch_per_device is None else f"{trial.batch_per_device:,}",
        f"{figures.figure(rate.value, figures.half_width(rate.ci95))} {rate.unit}" if rate else ABSENT,
        figures.figure(speedup.value, figures.half_width(speedup.ci95)) if speedup else ABSENT,
        record.validity.status,
        record.run_id,
    )


def _frameworks(usable: Sequence[RunRecord]) -> Iterable[Figure]:
    """Frameworks beside each other where they trained the same network alike: a bar for the fastest run of each."""
    groups: dict[tuple[str, ...], dict[str, RunRecord]] = {}
    for record in usable:
        trial = record.trial
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
        name = f"{lines.framework(record)}, {trial.way}"
        own = groups.setdefault(alike, {})
        if name not in own or _rate(record) > _rate(own[name]):
            own[name] = record
    for alike, own in groups.items():
        if len({record.trial.framework for record in own.values() if isinstance(record.trial, Trial)}) > 1:
            yield _beside(alike, own)


def _beside(alike: Sequence[str], own: dict[str, RunRecord]) -> Figure:
    names = sorted(own, key=lambda name: -_rate(own[name]))[:BARS]
    rates = [own[name].measurement.throughput for name in names]
    intervals = [rate.ci95 if rate else None for rate in rates]
    series = Series(
        name="measured",
        x=tuple(names),
        y=tuple(rate.value if rate else None for rate in rates),
        low=tuple(one.low if one else None for one in intervals),
        high=tuple(one.high if one else None for one in intervals),
        degraded=tuple(own[name].validity.status == "degraded" for name in names),
        runs=tuple((own[name].run_id,) for name in names),
    )
    place, network, mode, precision, batch, devices, data = alike
    return Figure(
        name=anchor("frameworks", *alike),
        title=f"Frameworks beside each other, {network} on {devices}",
        shape="lying",
        x="framework",
        y="throughput (images/s)" if not rates[0] else f"throughput ({rates[0].unit})",
        series=(series,),
        interval="95 % bootstrap interval over the windows of the run",
        notes=(f"{place}: {mode}, {precision}, {batch}, {data}; the fastest usable run of each",),
    )


def _size(trial: Trial) -> str:
    return f" {trial.image_shape[1]}×{trial.image_shape[2]}" if trial.image_shape else ""


def _rate(record: RunRecord) -> float:
    rate = record.measurement.throughput
    return rate.value if rate else 0.0
