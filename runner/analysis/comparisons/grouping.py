"""Records on file → those of one training that differ in some facts only: what the reports across matrices are made of. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from runner.analysis.comparisons.identity import identity
from runner.analysis.grading import metrics
from runner.analysis.summarize import Row, Summary, machine, summarize, usable_windows, version_of
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.trial import Trial

Run = tuple[Path, RunRecord]
Key = TypeVar("Key", bound=tuple[Any, ...])
LONGEST: Final = 120
"""Letters of a name; what reports have behind it fits a file's 255 as well."""


def is_training(record: RunRecord, *, passes: bool = False) -> bool:
    """Whether a program of the suite ran by itself: no training beside others and, without `passes`, no pass under a profiler."""
    return isinstance(record.trial, Trial) and not record.concurrent and (passes or not record.profiled)


def alike(
    runs: Sequence[Run],
    *,
    but: Collection[str],
    wanted: Callable[[Trial], bool],
    also: Callable[[RunRecord, Trial], tuple[str, ...]],
    passes: bool = False,
) -> list[list[Run]]:
    """Runs of one training each (`is_training`): those `wanted` that share all facts `but` these (`identity`) and what `also` says.

    With `passes`, passes under a profiler stand beside the trainings that they are of.
    """

    def shared(run: Run) -> tuple[Any, ...]:
        facts = tuple(fact for fact in identity(run[1]) if fact[0] not in but)
        return facts, also(run[1], trial_of(run))

    own = [run for run in runs if is_training(run[1], passes=passes) and wanted(trial_of(run))]
    return list(partition(own, shared).values())


def partition(runs: Iterable[Run], by: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Runs by what they have in common, in the order in which that is first met."""
    found: dict[Key, list[Run]] = {}
    for run in runs:
        found.setdefault(by(run), []).append(run)
    return found


def grouped(runs: Iterable[Run], by: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Runs by what they have in common, in the order of that."""
    return dict(sorted(partition(runs, by).items(), key=lambda item: item[0]))


def in_settings(
    runs: Sequence[Run],
    *,
    but: Collection[str] = (),
    wanted: Callable[[Trial], bool],
    also: Callable[[RunRecord, Trial], tuple[str, ...]],
    setting: Callable[[Run], Key],
    differ: Callable[[Collection[Key]], bool],
    name: Callable[[Run], str],
) -> Iterator[tuple[str, dict[Key, list[Run]]]]:
    """Each training (`alike`) whose settings `differ` in what is compared: the name of its report, and its runs by setting, in order."""
    names = Names()
    for own in alike(runs, but=but, wanted=wanted, also=also):
        settings = grouped(own, setting)
        if differ(settings):
            yield names.take(name(own[0])), settings


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


def ids(runs: Sequence[Run]) -> tuple[str, ...]:
    """Ids of runs."""
    return tuple(record.run_id for _, record in runs)


def usable(runs: Iterable[Run]) -> list[RunRecord]:
    """Records of the runs whose figures may be used."""
    return [record for _, record in runs if record.validity.status != "invalid"]


def software(run: Run) -> tuple[str, str]:
    """The framework of a run that `alike` gave, and its version, for names of reports."""
    return trial_of(run).framework, version_of(run[1])


def slug(words: Iterable[str]) -> str:
    """Words as the name of a file, which no record can make longer than a disk takes."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower())[:LONGEST]


def pixels(trial: Trial) -> tuple[str, ...]:
    """The size of a trial's images as a word of a name; none where samples are no images."""
    return (f"{trial.image_size}px",) if trial.image_size else ()


def at_batch(trial: Trial) -> tuple[str, ...]:
    """Precision, batch and scale of a trial as words of a name."""
    return trial.precision, f"batch{trial.batch_per_device}", f"{trial.world_size}{trial.device}"


def of_batch(what: str, run: Run) -> str:
    """The name of a report on one training at one batch and scale."""
    trial = trial_of(run)
    return slug((what, *software(run), trial.model, *pixels(trial), *at_batch(trial)))


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
    own, other = (usable_windows(usable(some)) for some in (runs, base))
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
    """Some runs together; `ratio` is their throughput over that of the base of the comparison.

    It is None of the base itself, and unless both may be used.
    """

    label: str
    row: Row
    ratio: float | None
    ratio_ci95: Interval | None
    runs: tuple[str, ...]


def compared(label: str, runs: Sequence[Run], base: Sequence[Run], *, alone: Sequence[Run] = ()) -> Compared:
    """Hold runs of one scale against `base`, which may be they themselves; `alone`, on one device, is what efficiency is against."""
    value, ci95 = ratio(runs, () if runs is base else base)
    return Compared(label=label, row=summarize([*alone, *runs]).rows[-1], ratio=value, ratio_ci95=ci95, runs=ids(runs))


class TrainingReport(Frozen):
    """One training in several settings; `setting` and `ran_on` are a line each on what all of it shares."""

    name: str
    title: str
    setting: str
    ran_on: str
    unit: str
    notes: tuple[str, ...]


def heading(name: str, first: Summary) -> dict[str, str]:
    """What a report shares with the summary of its first runs, by the fields of a `TrainingReport`."""
    setting = f"{first.setting}, {first.rows[0].devices}"
    return {"name": name, "title": first.title, "setting": setting, "ran_on": first.ran_on, "unit": first.rate_unit}


class TrainingComparison(TrainingReport):
    """The same, a row for each setting, in the order of the table."""

    rows: tuple[Compared, ...]


def reasons(rows: Iterable[Compared]) -> Iterator[str]:
    """Why single rows are not valid."""
    for one in rows:
        if one.row.reasons:
            yield f"{one.label} {one.row.verdict}"
