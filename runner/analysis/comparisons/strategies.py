"""Records on file → trainings in several ways: runs of one training on the same devices that differ in how its ranks train together. Pure.

Each way's efficiency is against the runs on one device that share the key of its speedups (`Trial.key`). The framework's own ways come before
Horovod, and the first of them is what the others are held against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from runner.analysis.comparisons.alike import (
    Compared,
    Names,
    Run,
    TrainingComparison,
    alike,
    grouped,
    of_batch,
    on_one_input,
    ratio,
    reasons,
    trial_of,
    versions,
)
from runner.analysis.summarize import model_in_words, summarize, version_of
from runner.core.record import RunRecord
from runner.core.trial import Horovod, Trial

# Facts of a trial that say how its ranks train together.
_OF_WAY: Final = frozenset({"strategy", "kvstore", "horovod"})

_Base = tuple[str, ...]
"""What runs on one device have in common with those whose speedups they are the base of."""
_Place = tuple[bool, str]
"""A way in the order of the table: by Horovod or not, and in words."""


def strategies(runs: Sequence[Run]) -> tuple[TrainingComparison, ...]:
    """Find what was trained in several ways; passes under a profiler and trainings at once are left out.

    Args:
        runs: run directories and their records, in any order; invalid ones have no figure.
    """
    alone: dict[_Base, list[Run]] = {}
    for own in alike(runs, but=(), wanted=lambda trial: trial.world_size == 1, also=_base):
        alone.setdefault(_base(own[0][1], trial_of(own[0])), []).extend(own)
    names = Names()
    found = []
    for own in alike(
        runs, but=_OF_WAY, wanted=lambda trial: trial.mode == "train" and trial.world_size > 1, also=on_one_input
    ):
        ways = grouped(own, _place)
        if len(ways) > 1:
            found.append(_report(ways, alone, name=names.take(of_batch("strategies", own[0]))))
    return tuple(found)


def _base(record: RunRecord, trial: Trial) -> _Base:
    return trial.key, version_of(record), record.engine


def _place(run: Run) -> _Place:
    trial = trial_of(run)
    if trial.horovod is None:
        return False, trial.way
    return True, ", ".join((trial.way, *_options(trial.horovod)))


def _options(horovod: Horovod) -> Iterator[str]:
    yield f"{horovod.controller} controller"
    if horovod.fusion_threshold_mib is not None:
        yield f"fusion threshold {horovod.fusion_threshold_mib} MiB"
    if horovod.cycle_time_ms is not None:
        yield f"cycle time {horovod.cycle_time_ms} ms"
    if horovod.compression != "none":
        yield f"compression {horovod.compression}"


def _report(ways: dict[_Place, list[Run]], alone: dict[_Base, list[Run]], *, name: str) -> TrainingComparison:
    first = next(iter(ways.values()))
    shown = summarize(first)
    base = alone.get(_base(first[0][1], trial_of(first[0])), [])
    found = tuple(_way(own, first, base, label=label) for (_, label), own in ways.items())
    everything = [run for own in ways.values() for run in own]
    trial = trial_of(first[0])
    faster = f", with {', '.join(trial.techniques)}" if trial.techniques else ""
    return TrainingComparison(
        name=name,
        title=shown.title,
        setting=f"{model_in_words(trial)}, batch {trial.batch_per_device} per device, {trial.precision}, {shown.rows[0].devices}{faster}",
        ran_on=shown.ran_on,
        unit=shown.rate_unit,
        rows=found,
        notes=(
            *reasons(found),
            *_asynchronous(ways),
            *versions(everything, but="strategy"),
        ),
    )


def _asynchronous(ways: dict[_Place, list[Run]]) -> Iterator[str]:
    """The ways in which ranks do not wait for each other."""
    for (_, label), own in ways.items():
        if trial_of(own[0]).kvstore == "dist_async":
            yield f"{label}: a rank goes on with the weights that it finds, so that as many images may teach less"


def _way(runs: Sequence[Run], first: Sequence[Run], alone: Sequence[Run], *, label: str) -> Compared:
    of_first, of_first_ci95 = (None, None) if runs is first else ratio(runs, first)
    return Compared(
        label=label,
        row=summarize([*alone, *runs]).rows[-1],
        ratio=of_first,
        ratio_ci95=of_first_ci95,
        runs=tuple(record.run_id for _, record in runs),
    )
