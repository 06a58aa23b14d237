"""Records on file → groups of runs of one training that differ in some facts only: the basis of reports across matrices. Pure."""

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
"""The most characters of a name, so that the suffixes of reports also fit into a file name's 255."""


def is_training(record: RunRecord, *, passes: bool = False) -> bool:
    """Whether a program of the suite ran alone: no concurrent trainings and, without `passes`, no profiler."""
    return isinstance(record.trial, Trial) and not record.concurrent and (passes or not record.profiled)


def alike(
    runs: Sequence[Run],
    *,
    but: Collection[str],
    wanted: Callable[[Trial], bool],
    also: Callable[[RunRecord, Trial], tuple[str, ...]],
    passes: bool = False,
) -> list[list[Run]]:
    """Group the `wanted` runs (`is_training`) that share all facts of `identity` except `but`, and what `also` returns.

    With `passes`, profiling passes join the trainings that they belong to.
    """

    def shared(run: Run) -> tuple[Any, ...]:
        facts = tuple(fact for fact in identity(run[1]) if fact[0] not in but)
        return facts, also(run[1], trial_of(run))

    own = [run for run in runs if is_training(run[1], passes=passes) and wanted(trial_of(run))]
    return list(partition(own, shared).values())


def partition(runs: Iterable[Run], by: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Group runs by key, in order of first appearance."""
    found: dict[Key, list[Run]] = {}
    for run in runs:
        found.setdefault(by(run), []).append(run)
    return found


def grouped(runs: Iterable[Run], by: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Group runs by key, in the keys' order."""
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
    """Yield each training (`alike`) whose settings `differ`: the name of its report, and its runs by setting, in order."""
    names = Names()
    for own in alike(runs, but=but, wanted=wanted, also=also):
        settings = grouped(own, setting)
        if differ(settings):
            yield names.take(name(own[0])), settings


def on_one_machine(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """Software, machine, cores and threads of a run: what `alike` may require beyond the facts of its trial."""
    return version_of(record), record.engine, machine(record), str(trial.cpus_per_worker), str(threads(trial))


def threads(trial: Trial) -> int | None:
    """Training threads; None on GPUs, where the host's threads do not train."""
    return trial.threads if trial.device == "cpu" else None


def on_one_input(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """`on_one_machine`, and the number of loader workers."""
    return *on_one_machine(record, trial), str(trial.loader_workers)


def trial_of(run: Run) -> Trial:
    """The trial of a run of the suite's own programs, such as every run that `alike` returns."""
    trial = run[1].trial
    assert isinstance(trial, Trial)  # noqa: S101 - for mypy: callers pass no other
    return trial


def ids(runs: Sequence[Run]) -> tuple[str, ...]:
    """Ids of runs."""
    return tuple(record.run_id for _, record in runs)


def usable(runs: Iterable[Run]) -> list[RunRecord]:
    """Records of the runs that are not invalid."""
    return [record for _, record in runs if record.validity.status != "invalid"]


def software(run: Run) -> tuple[str, str]:
    """Framework of a run from `alike`, and its version, for names of reports."""
    return trial_of(run).framework, version_of(run[1])


def slug(words: Iterable[str]) -> str:
    """Join words into a file name, capped at `LONGEST` characters."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower())[:LONGEST]


def pixels(trial: Trial) -> tuple[str, ...]:
    """A trial's image size as part of a name; empty if its samples are not images."""
    return (f"{trial.image_size}px",) if trial.image_size else ()


def at_batch(trial: Trial) -> tuple[str, ...]:
    """Precision, batch and scale of a trial as parts of a name."""
    return trial.precision, f"batch{trial.batch_per_device}", f"{trial.world_size}{trial.device}"


def of_batch(what: str, run: Run) -> str:
    """The name of a report on one training at one batch and scale."""
    trial = trial_of(run)
    return slug((what, *software(run), trial.model, *pixels(trial), *at_batch(trial)))


class Names:
    """Unique names of reports: a repeated name gets a number."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Return the name, numbered from its second use on."""
        self._uses[name] = self._uses.get(name, 0) + 1
        return name if self._uses[name] == 1 else f"{name}-{self._uses[name]}"


def ratio(runs: Sequence[Run], base: Sequence[Run]) -> tuple[float | None, Interval | None]:
    """Throughput relative to `base` with its 95 % interval; None unless both have a usable run."""
    own, other = (usable_windows(usable(some)) for some in (runs, base))
    if not own or not other:
        return None, None
    return metrics.pooled_rate(own) / metrics.pooled_rate(other), metrics.ratio_interval(own, other)


def versions(runs: Sequence[Run], *, but: str) -> Iterator[str]:
    """Yield a sentence if several versions of the programs ran, and one for their requirements; `but` is what the report varies."""
    for what, found in (
        ("training programs", {record.provenance.workloads_sha256 for _, record in runs}),
        ("locked requirements", {record.image.lock_sha256 for _, record in runs}),
    ):
        if len(found) > 1:
            yield f"{len(found)} versions of the {what} were run: not the {but} alone differ{'' if but.endswith('s') else 's'}"


class Compared(Frozen):
    """Pooled runs; `ratio` is their throughput over that of the comparison's base.

    It is None for the base itself, and unless both are usable.
    """

    label: str
    row: Row
    ratio: float | None
    ratio_ci95: Interval | None
    runs: tuple[str, ...]


def compared(label: str, runs: Sequence[Run], base: Sequence[Run], *, alone: Sequence[Run] = ()) -> Compared:
    """Compare runs of one scale with `base`, which may be `runs` itself; `alone`, on one device, is the baseline of efficiency."""
    value, ci95 = ratio(runs, () if runs is base else base)
    return Compared(label=label, row=summarize([*alone, *runs]).rows[-1], ratio=value, ratio_ci95=ci95, runs=ids(runs))


class TrainingReport(Frozen):
    """One training in several settings; `setting` and `ran_on` are one line each about what they share."""

    name: str
    title: str
    setting: str
    ran_on: str
    unit: str
    notes: tuple[str, ...]


def heading(name: str, first: Summary) -> dict[str, str]:
    """The fields of a `TrainingReport` that come from the summary of its first runs."""
    setting = f"{first.setting}, {first.rows[0].devices}"
    return {"name": name, "title": first.title, "setting": setting, "ran_on": first.ran_on, "unit": first.rate_unit}


class TrainingComparison(TrainingReport):
    """A `TrainingReport` with one row per setting, in table order."""

    rows: tuple[Compared, ...]


def reasons(rows: Iterable[Compared]) -> Iterator[str]:
    """Yield the verdict of each row with reasons against it."""
    for one in rows:
        if one.row.reasons:
            yield f"{one.label} {one.row.verdict}"
