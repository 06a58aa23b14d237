"""Records on file → their cells: all usable runs of one training in one setting on one kind of device, whichever matrix they are of. Pure.

The runs of a cell are pooled, samples of all ÷ seconds of all: the best of several is the luckiest, and says nothing of the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.analysis.comparisons.identity import identity, in_words
from runner.analysis.summarize import between, machine, summarize, version_of
from runner.analysis.summary import Row
from runner.core.record import RunRecord
from runner.core.trial import ExternalTrial, Trial

_OF_WIRES: Final = ("interconnect", "link")
_TOLD: Final = ("framework", "model", "mode", "image_shape", "device_name", *_OF_WIRES)
"""Facts that stand beside a setting, or that it tells by what was used."""


@dataclass(frozen=True)
class Cell:
    """The runs of one cell pooled, with speedup and efficiency where runs on one device are on file; `record` is the first of them.

    `setting` is what sets it apart from other cells of its network, framework and number of devices, in words.
    """

    record: RunRecord
    setting: str
    row: Row
    runs: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Pooled throughput."""
        return self.row.throughput or 0.0


def cells(records: Iterable[RunRecord]) -> list[Cell]:
    """Every cell that has a rate; passes under a profiler and trainings at once are left out, as is what may not be used."""
    found: dict[tuple[object, ...], list[RunRecord]] = {}
    alone: dict[str, list[RunRecord]] = {}
    for record in records:
        usable = record.validity.status != "invalid" and record.measurement.throughput
        if usable and not record.profiled and not record.concurrent:
            found.setdefault(_key(record), []).append(record)
            if record.trial.world_size == 1:
                alone.setdefault(record.trial.key, []).append(record)
    return [_cell(own, alone) for own in found.values()]


def _key(record: RunRecord) -> tuple[object, ...]:
    """What is compared by `identity`, the software and cores that it leaves free, and the wires that were used, whichever were asked for."""
    trial = record.trial
    software = trial.image if isinstance(trial, ExternalTrial) else version_of(record)
    given = (trial.threads, trial.loader_workers) if isinstance(trial, Trial) and trial.device == "cpu" else ()
    facts = tuple((name, value) for name, value in identity(record) if name not in _OF_WIRES)
    return facts, software, record.engine, machine(record), trial.cpus_per_worker, given, _wires(record)


def _wires(record: RunRecord) -> str:
    return between(record) if record.trial.world_size > 1 else ""


def _cell(own: Sequence[RunRecord], alone: dict[str, list[RunRecord]]) -> Cell:
    first = own[0]
    keys = dict.fromkeys(record.trial.key for record in own)
    base = [] if first.trial.world_size == 1 else [record for key in keys for record in alone.get(key, ())]
    return Cell(
        record=first,
        setting=", ".join(_setting(first)),
        row=summarize([(Path(record.run_id), record) for record in (*base, *own)]).rows[-1],
        runs=tuple(record.run_id for record in own),
    )


def _setting(record: RunRecord) -> Iterator[str]:
    trial = record.trial
    if isinstance(trial, Trial):
        yield in_words(identity(record), but=_TOLD)
    elif trial.batch_per_device:
        yield f"batch {trial.batch_per_device} each"
    if wires := _wires(record):
        yield f"over {wires}"
    if trial.cpus_per_worker:
        yield f"{trial.cpus_per_worker} core{'' if trial.cpus_per_worker == 1 else 's'} each"
    if isinstance(trial, Trial) and trial.device == "cpu" and trial.threads != trial.cpus_per_worker:
        yield f"{trial.threads} threads"
    if isinstance(trial, Trial) and trial.dataset and trial.device == "cpu":
        yield f"{trial.loader_workers} loader workers"
    if record.engine != "docker":
        yield f"engine {record.engine}"
