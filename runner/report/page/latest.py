"""What the page opens with: what was measured last, what came of it, and what differs from the one before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from runner.analysis.comparisons.identity import differences
from runner.analysis.comparisons.regression import compare
from runner.analysis.summarize import machine
from runner.core.units import ABSENT
from runner.report import compare as against
from runner.report import figures
from runner.report.matrix import verdict
from runner.report.page.model import Block, Figure
from runner.report.table import Table

if TYPE_CHECKING:
    from runner.analysis.summarize import Summary
    from runner.core.record import RunRecord

LEGEND: Final = (
    "ratio: latest/before, with its 95 % interval over runs; p: two-sided Mann-Whitney U test, corrected by Holm"
)


@dataclass(frozen=True)
class Shown:
    """A matrix on the page: one curve of it, with its figures there; `name` is that of the matrix."""

    name: str
    summary: Summary
    records: tuple[RunRecord, ...]
    figures: tuple[Figure, ...]

    @property
    def when(self) -> datetime:
        """When its last run was."""
        return max(record.provenance.recorded_at for record in self.records)

    @property
    def hardware(self) -> str:
        """What it ran on."""
        return hardware(self.records[0])


def hardware(record: RunRecord) -> str:
    """The GPU or processor of a machine, however many of its cores a run may use."""
    return re.sub(r", \d+ cores?$", "", machine(record))


def latest(shown: Sequence[Shown]) -> tuple[Shown, Block] | None:
    """The last one and its block; None where nothing was measured."""
    ordered = sorted(shown, key=lambda one: (one.when, one.name, one.summary.setting))
    if not ordered:
        return None
    last = ordered[-1]
    before = _before(last, ordered[:-1])
    tables = [figures.screen(last.summary)]
    if before:
        compared = compare(before.records, last.records, names=(before.name, last.name))
        pairs = against.table(compared)
        sides = {"A": "before", "B": "latest", "B/A": "ratio"}
        columns = tuple(sides.get(name, name) for name in pairs.columns)
        tables.append(
            pairs.model_copy(update={"title": "Against the one before", "columns": columns, "legend": LEGEND})
        )
        differ = tuple(one for one in _parts(before, last) if one[1] != one[2])
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
        figures=tuple(one for one in last.figures if one.name.endswith(("-throughput", "-speedup"))),
        tables=tuple(table for table in tables if table.rows),
        notes=figures.notes(last.summary),
        runs=tuple(record.run_id for record in last.records),
        empty=one_scale(last.summary),
    )
    return last, block


def one_scale(summary: Summary) -> str:
    """What to run where nothing can be drawn; empty where something can."""
    usable = [row for row in summary.rows if row.usable]
    if len(usable) != 1:
        return ""
    what = "--gpus" if usable[0].device == "gpu" else "--workers"
    return f"One scale makes no curve: dlscale bench {what}=1,2 measures two."


def _before(last: Shown, others: Sequence[Shown]) -> Shown | None:
    """The one before it on the same machine: of the same training, else of any."""
    here = [one for one in others if one.hardware == last.hardware and one.name != last.name]
    alike = [one for one in here if one.summary.title == last.summary.title]
    return next(reversed(alike or here), None)


def _parts(before: Shown, last: Shown) -> Iterator[tuple[str, str, str]]:
    """What there is to say of both."""
    a, b = before.summary, last.summary
    yield "training", a.title, b.title
    yield "setting", a.setting, b.setting
    yield "wires", a.wires or ABSENT, b.wires or ABSENT
    yield "engine", a.engine, b.engine
    same_kind = type(before.records[0].trial) is type(last.records[0].trial)
    for one in differences(before.records, last.records) if same_kind else ():
        yield one.what, ", ".join(one.a), ", ".join(one.b)
    yield "result", verdict(a), verdict(b)
