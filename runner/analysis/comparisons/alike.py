"""Records on file → those of one training that differ in some facts only: what the reports across matrices are made of. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from runner.analysis.compare.identity import Identity, identity
from runner.analysis.grading import metrics
from runner.analysis.summarize import machine, usable_windows, version_of
from runner.analysis.summary import Row
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.trial import Trial

Run = tuple[Path, RunRecord]
Key = TypeVar("Key", bound=tuple[Any, ...])
LONGEST: Final = 120
"""Letters of a name; what reports have behind it fits a file's 255 as well."""


def alike(
    runs: Sequence[Run],
    *,
    but: Collection[str],
    wanted: Callable[[Trial], bool],
    also: Callable[[RunRecord, Trial], tuple[str, ...]],
) -> list[list[Run]]:
    """Runs of one training each; passes under a profiler and trainings at once are left out, as are other programs.

    Args:
        runs: run directories and their records, in any order.
        but: facts of a trial in which they may differ (`compare.identity`).
        wanted: which trials are looked at.
        also: what they have in common that is no such fact.
    """
    kinds: dict[tuple[Identity, tuple[str, ...]], list[Run]] = {}
    for path, record in runs:
        trial = record.trial
        if isinstance(trial, Trial) and wanted(trial) and not record.profiled and not record.concurrent:
            shared = tuple((name, value) for name, value in identity(record) if name not in but)
            kinds.setdefault((shared, also(record, trial)), []).append((path, record))
    return list(kinds.values())


def grouped(runs: Sequence[Run], by: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Runs by what they have in common, in the order of that."""
    found: dict[Key, list[Run]] = {}
    for run in runs:
        found.setdefault(by(run), []).append(run)
    return {key: found[key] for key in sorted(found)}


def on_one_machine(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """The software, the machine and the threads of a run: what `alike` may ask for beyond the facts of its trial."""
    return version_of(record), record.engine, machine(record), str(trial.cpus_per_worker), str(threads(trial))


def threads(trial: Trial) -> int | None:
    """Threads that train; None on GPUs, for which those of the host do not."""
    return trial.threads if trial.device == "cpu" else None


def on_one_input(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """The same, and how many prepare its samples."""
    return *on_one_machine(record, trial), str(trial.loader_workers)


def trial_of(run: Run) -> Trial:
    """The trial of a run that is one of the suite's own programs, as all are that `alike` gives."""
    trial = run[1].trial
    assert isinstance(trial, Trial)  # noqa: S101 - it gives no other
    return trial


def software(run: Run) -> tuple[str, str]:
    """The framework of a run that `alike` gave, and its version, for names of reports."""
    return trial_of(run).framework, version_of(run[1])


def slug(words: Iterable[str]) -> str:
    """Words as the name of a file, which no record can make longer than a disk takes."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower())[:LONGEST]


def of_batch(what: str, run: Run) -> str:
    """The name of a report on one training at one batch and scale."""
    trial = trial_of(run)
    words = (
        *(what, *software(run), trial.model),
        *((f"{trial.image_size}px",) if trial.image_size else ()),
        *(trial.precision, f"batch{trial.batch_per_device}", f"{trial.world_size}{trial.device}"),
    )
    return slug(words)


class Names:
    """Names of reports; one that is given again gets a number."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def take(self, name: str) -> str:
        """The name, or the name with the number of times that it was asked for."""
        self._given[name] = self._given.get(name, 0) + 1
        return name if self._given[name] == 1 else f"{name}-{self._given[name]}"


def ratio(runs: Sequence[Run], base: Sequence[Run]) -> tuple[float | None, Interval | None]:
    """Throughput over that of `base` with its 95 % interval; None where one of the two has no run that may be used."""
    own, other = (usable_windows([record for _, record in some]) for some in (runs, base))
    if not own or not other:
        return None, None
    return metrics.pooled_rate(own) / metrics.pooled_rate(other), metrics.ratio_interval(own, other)


def versions(runs: Sequence[Run], *, but: str) -> Iterator[str]:
    """What else than `but` differs between runs: a sentence for the programs, and for what they ran in."""
    for what, found in (
        ("training programs", {record.provenance.workloads_sha256 for _, record in runs}),
        ("locked requirements", {record.image.lock_sha256 for _, record in runs}),
    ):
        if len(found) > 1:
            yield f"{len(found)} versions of the {what} were run: not the {but} alone differ{'' if but.endswith('s') else 's'}"


class Compared(Frozen):
    """Some runs of a comparison together, held against others of it.

    Attributes:
        label: what tells them apart.
        row: the runs together.
        ratio: throughput over that of the runs that the report holds all others against; None of these themselves, and unless both may be used.
        runs: ids of the runs.
    """

    label: str
    row: Row
    ratio: float | None
    ratio_ci95: Interval | None
    runs: tuple[str, ...]


class TrainingReport(Frozen):
    """One training in several settings.

    Attributes:
        name: of its reports.
        title: framework, version, model.
        setting: what all of it shares, in one line.
        ran_on: machine, image and date, in one line.
        unit: of the throughput.
        notes: what the figures alone would hide.
    """

    name: str
    title: str
    setting: str
    ran_on: str
    unit: str
    notes: tuple[str, ...]


class TrainingComparison(TrainingReport):
    """The same, a row for each setting, in the order of the table."""

    rows: tuple[Compared, ...]


def reasons(rows: Iterable[Compared]) -> Iterator[str]:
    """Why single rows are not valid."""
    for one in rows:
        if one.row.reasons:
            yield f"{one.label} {one.row.status}: {'; '.join(one.row.reasons)}"
