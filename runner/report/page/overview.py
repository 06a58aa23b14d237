"""The top of the page: the latest measurement and how it differs from the one before, the number of runs, and the fastest cell of each network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from runner.analysis.comparisons.identity import Cell, cells, differences
from runner.analysis.comparisons.regression import compare
from runner.analysis.summarize import Summary, machine, mode_in_words
from runner.core import units
from runner.core.record import RunRecord
from runner.core.trial import Trial
from runner.core.units import ABSENT
from runner.report import compare as comparison_text
from runner.report import matrix
from runner.report.matrix import verdict
from runner.report.page import runs as lines
from runner.report.page.model import Block, Figure, RunLine, anchor, error_bars, make_distinct, series_of
from runner.report.table import Table

MOST = 40  # rows of a table here; the table of all runs has the rest
MOST_BARS = 12


STATUSES: Final = ("valid", "degraded", "invalid", "failed")


def counts(runs: Sequence[RunLine], *, studies: int) -> tuple[tuple[str, int], ...]:
    """Labels and numbers: runs by validity, passes, studies."""
    measured = [run for run in runs if not run.profiled]
    every = {"runs": len(measured), **{status: _count(measured, status) for status in STATUSES}}
    passes = len(runs) - len(measured)
    every |= {
        "passes under a profiler" if passes != 1 else "pass under a profiler": passes,
        "studies" if studies != 1 else "study": studies,
    }
    return tuple((words, number) for words, number in every.items() if number or words == "runs")


def overview(records: Sequence[RunRecord], runs: Sequence[RunLine], *, here: str | None = None) -> Block:
    """The fastest cell of each network, frameworks side by side, and the number of runs per folder, machine and framework.

    `records` are drawn, `runs` are all on file. Cells of other hardware than `here` are folded; with None no cell is.
    """
    found = cells(records)
    own = [cell for cell in found if here in (None, hardware(cell.record))]
    others = [cell for cell in found if here not in (None, hardware(cell.record))]
    elsewhere = fastest(others)
    title = elsewhere.title + " on other machines" * ("machine" in elsewhere.columns)
    folders = [unquote(str(PurePosixPath(run.folder).parent)) for run in runs]
    every = (
        fastest(own),
        elsewhere.model_copy(update={"title": title, "folded": True}),
        *([_by("folder", folders, runs)] if len(set(folders)) > 1 else []),
        *(_by(name, [run.cells[lines.COLUMNS.index(name)] for run in runs], runs) for name in ("machine", "framework")),
    )
    return Block(
        anchor="overview",
        title="Overview",
        lead="",
        figures=tuple(_frameworks(own)),
        tables=tuple(table for table in every if table.rows),
    )


def _by(name: str, values: Sequence[str], runs: Sequence[RunLine]) -> Table:
    """The number of runs by validity for each folder, machine or framework; `values` has one entry per run."""
    groups: dict[str, list[RunLine]] = {}
    for value, run in zip(values, runs, strict=True):
        groups.setdefault(value, []).append(run)
    return Table(
        title=f"By {name}",
        columns=(name, "runs", *STATUSES),
        rows=tuple(
            (group, f"{len(own):,}", *(f"{_count(own, status):,}" for status in STATUSES))
            for group, own in sorted(groups.items())
        ),
        folded=True,
    )


def _count(runs: Sequence[RunLine], status: str) -> int:
    at = lines.COLUMNS.index("validity")
    return sum(run.cells[at] == status for run in runs)


def fastest(found: Iterable[Cell]) -> Table:
    """The cell with the highest throughput for each machine, network and number of devices."""
    best: dict[tuple[str, ...], Cell] = {}
    for cell in found:
        record = cell.record
        key = (machine(record), network(record), lines.devices(record), cell.row.unit)
        if key not in best or cell.rate > best[key].rate:
            best[key] = cell
    ordered = sorted(
        best.values(),
        key=lambda one: (machine(one.record), network(one.record), one.row.scale, lines.devices(one.record)),
    )
    more = f"; {len(ordered) - MOST:,} more networks are in the table of all runs" if len(ordered) > MOST else ""
    columns: dict[str, Callable[[Cell], str]] = {
        "machine": lambda cell: machine(cell.record),
        "network": lambda cell: network(cell.record),
        "devices": lambda cell: lines.devices(cell.record),
        "framework": lambda cell: lines.framework(cell.record),
        "cell": lambda cell: cell.setting or ABSENT,
        "runs": lambda cell: matrix.runs(cell.row),
        "throughput ±": lambda cell: f"{matrix.rate(cell.row)} {cell.row.unit}",
        "speedup ±": lambda cell: matrix.speedup(cell.row),
        "validity": lambda cell: cell.row.status,
        "made from": lambda cell: " ".join(cell.runs),
    }
    legend = (
        "cell: one training in one setting, all its usable runs pooled (samples ÷ seconds); of the cells of a network on as many devices the "
        f"one with the highest pooled throughput; {units.PLUS_MINUS}, nor have runs on several GPUs; batch: of one device{more}"
    )
    table = Table.from_entries(ordered[:MOST], columns, title="Fastest cell of each network", legend=legend)
    machines = {machine(cell.record) for cell in ordered}
    if len(machines) != 1:
        return table
    return table.without("machine").model_copy(update={"title": f"{table.title} on {machines.pop()}"})


def network(record: RunRecord) -> str:
    """Network, image size and mode, or the name of an external program."""
    trial = record.trial
    return f"{trial.model}{_size(trial)} {mode_in_words(record)}" if isinstance(trial, Trial) else trial.name


def _frameworks(found: Iterable[Cell]) -> Iterable[Figure]:
    """Frameworks that trained the same network in the same setting, side by side: each one's fastest cell with techniques and without."""
    groups: dict[tuple[str, ...], dict[tuple[str, bool], Cell]] = {}
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
        kind = f"{lines.framework(record)}, {trial.way}", bool(trial.techniques)
        own = groups.setdefault(alike, {})
        if kind not in own or cell.rate > own[kind].rate:
            own[kind] = cell
    several = {
        alike: own
        for alike, own in groups.items()
        if len({cell.record.trial.framework for cell in own.values() if isinstance(cell.record.trial, Trial)}) > 1
    }
    titles = make_distinct([f"Frameworks beside each other, {one[1]} on {one[5]}" for one in several], list(several))
    for title, (alike, own) in zip(titles, several.items(), strict=True):
        yield _side_by_side(title, alike, {_bar_name(name, cell): cell for (name, _), cell in own.items()})


def _bar_name(name: str, cell: Cell) -> str:
    trial = cell.record.trial
    return ", ".join((name, *trial.techniques)) if isinstance(trial, Trial) else name


def _side_by_side(title: str, alike: Sequence[str], own: dict[str, Cell]) -> Figure:
    names = sorted(own, key=lambda name: -own[name].rate)[:MOST_BARS]
    series = series_of(
        names,
        x=lambda name: name,
        y=lambda name: own[name].row.throughput,
        interval=lambda name: own[name].row.throughput_ci95,
        degraded=lambda name: own[name].row.status == "degraded",
        runs=lambda name: own[name].runs,
    )
    place, _, mode, precision, batch, _, data = alike
    return Figure(
        name=anchor("frameworks", *alike),
        title=title,
        shape="lying",
        x="framework",
        y=f"throughput ({own[names[0]].row.unit})",
        series=(series,),
        interval=error_bars(series),
        notes=(f"{place}: {mode}, {precision}, {batch}, {data}; all usable runs of a cell pooled",),
    )


def _size(trial: Trial) -> str:
    return f" {trial.image_shape[1]}×{trial.image_shape[2]}" if trial.image_shape else ""


LEGEND: Final = (
    "ratio: latest/before, with its 95 % interval over runs; p: of equal rates, by Welch's test, corrected by Holm"
)


@dataclass(frozen=True)
class Shown:
    """One curve of a matrix, and its figures on the page; `name` is the matrix's."""

    name: str
    summary: Summary
    records: tuple[RunRecord, ...]
    figures: tuple[Figure, ...]

    @property
    def when(self) -> datetime:
        """When its last run was recorded."""
        return max(record.provenance.recorded_at for record in self.records)

    @property
    def hardware(self) -> str:
        """The hardware that it ran on."""
        return hardware(self.records[0])


def _against(before: Shown, last: Shown) -> list[Table]:
    """The rates of two matrices, without the runs that both have: the latest reuses a baseline on file."""
    shared = {record.run_id for record in before.records} & {record.run_id for record in last.records}
    sides = [[record for record in one.records if record.run_id not in shared] for one in (before, last)]
    if not all(sides):
        return []
    pairs = comparison_text.table(compare(*sides, names=(before.name, last.name)))
    names = {"A": "before", "B": "latest", "B/A": "ratio"}
    columns = tuple(names.get(name, name) for name in pairs.columns)
    return [pairs.model_copy(update={"title": "Against the one before", "columns": columns, "legend": LEGEND})]


def hardware(record: RunRecord) -> str:
    """The GPU or processor of a machine, whatever number of cores a run used."""
    return re.sub(r", \d+ cores?$", "", machine(record))


def latest(shown: Sequence[Shown]) -> tuple[Shown, Block] | None:
    """The latest matrix and its block; None if nothing was measured."""
    ordered = sorted(shown, key=lambda one: (one.when, one.name, one.summary.setting))
    if not ordered:
        return None
    last = ordered[-1]
    before = _before(last, ordered[:-1])
    tables = [matrix.screen(last.summary)]
    if before:
        tables += _against(before, last)
        differ = tuple(one for one in _facts(before, last) if one[1] != one[2])
        tables.append(
            Table(
                title="What differs from the one before",
                columns=("fact", "before", "latest"),
                rows=differ,
                legend=f"before: {before.name}; latest: {last.name}",
            )
        )
    block = Block(
        anchor="latest-run",
        title=last.summary.title,
        lead=verdict(last.summary),
        lines=(last.summary.setting, *([last.summary.wires] if last.summary.wires else []), last.summary.ran_on),
        figures=tuple(
            one.model_copy(update={"title": f"{one.title} on {last.hardware}: {last.summary.setting}"})
            for one in last.figures
            if one.name.endswith(("-throughput", "-speedup"))
        ),
        tables=tuple(table for table in tables if table.rows),
        notes=matrix.notes(last.summary),
        runs=tuple(record.run_id for record in last.records),
        empty=single_scale_hint(last.summary),
    )
    return last, block


def single_scale_hint(summary: Summary) -> str:
    """What to run to get a curve; empty unless there is exactly one usable scale."""
    usable = [row for row in summary.rows if row.usable]
    if len(usable) != 1:
        return ""
    what = "--gpus" if usable[0].device == "gpu" else "--workers"
    return f"One scale makes no curve: dlscale bench {what}=1,2 measures two."


def _before(last: Shown, others: Sequence[Shown]) -> Shown | None:
    """The previous matrix on the same hardware: of the same training if there is one, else any."""
    here = [one for one in others if one.hardware == last.hardware and one.name != last.name]
    alike = [one for one in here if one.summary.title == last.summary.title]
    return next(reversed(alike or here), None)


def _facts(before: Shown, last: Shown) -> Iterator[tuple[str, str, str]]:
    a, b = before.summary, last.summary
    yield "training", a.title, b.title
    yield "setting", a.setting, b.setting
    yield "wires", a.wires or ABSENT, b.wires or ABSENT
    yield "engine", a.engine, b.engine
    same_kind = type(before.records[0].trial) is type(last.records[0].trial)
    for one in differences(before.records, last.records) if same_kind else ():
        yield one.what, ", ".join(one.a), ", ".join(one.b)
    yield "result", verdict(a), verdict(b)
