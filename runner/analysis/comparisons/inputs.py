"""Records on file → the `InputReport`s among them: runs of one training that differ in what it was fed with only. Pure.

Runs on the same data, decoded alike by as many workers, are pooled as repeats of a matrix are; ratios to synthetic samples are of the pools.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Literal

from runner.analysis.comparisons.alike import (
    Compared,
    Names,
    Run,
    TrainingComparison,
    alike,
    grouped,
    of_batch,
    on_one_machine,
    ratio,
    reasons,
    trial_of,
    versions,
)
from runner.analysis.summarize import summarize
from runner.core.dataset import PACKED
from runner.core.record import RunRecord
from runner.core.trial import Trial

_Place = tuple[bool, str, str, int, str]
"""What a training was fed with, in the order of the table: real or not, how it is stored, what decodes, workers, which data."""
# Facts of a trial that say what it is fed with; the number of classes is that of the data.
_OF_INPUT = frozenset({"data", "decode", "num_classes"})


def inputs(runs: Sequence[Run]) -> tuple[InputReport, ...]:
    """Find what was trained on synthetic images and on real ones; passes under a profiler and trainings at once are left out.

    Args:
        runs: run directories and their records, in any order; invalid ones have no figure.
    """
    names = Names()
    found = []
    for own in alike(
        runs,
        but=_OF_INPUT,
        wanted=lambda trial: trial.mode == "train" and trial.image_shape is not None,
        also=on_one_machine,
    ):
        places = grouped(own, _place)
        if len({real for real, *_ in places}) > 1:
            found.append(_report(places, name=names.take(of_batch("input", own[0]))))
    return tuple(found)


def _place(run: Run) -> _Place:
    trial = trial_of(run)
    if trial.dataset is None:
        return False, "", "", 0, ""
    packed = PACKED.get(PurePath(trial.dataset.path).suffix)
    return True, packed.label if packed else "JPEGs", trial.decode, trial.loader_workers, trial.dataset.digest


def _label(place: _Place, record: RunRecord, *, several: bool) -> str:
    real, stored, decode, workers, digest = place
    trial = record.trial
    if not real or not isinstance(trial, Trial) or trial.dataset is None:
        return "synthetic"
    which = f" ({trial.dataset.images:,} images, {digest[:8]})" if several else ""
    processes = f"{workers} loader worker{'' if workers == 1 else 's'}"
    return f"{stored}{which}, {decode.upper()} decode, {processes}"


def _report(places: dict[_Place, list[Run]], *, name: str) -> InputReport:
    first = next(iter(places))
    everything = [run for own in places.values() for run in own]
    synthetic = summarize(places[first])
    several = len({digest for real, *_, digest in places if real}) > 1
    sources = tuple(
        _source(own, places[first], label=_label(place, own[0][1], several=several)) for place, own in places.items()
    )
    return InputReport(
        name=name,
        title=synthetic.title,
        setting=f"{synthetic.setting}, {synthetic.rows[0].devices}",
        ran_on=synthetic.ran_on,
        unit=synthetic.rate_unit,
        rows=sources,
        notes=tuple(_notes(sources, everything)),
    )


def _source(runs: Sequence[Run], base: Sequence[Run], *, label: str) -> Source:
    told = [
        record.measurement.input_alone_per_s
        for _, record in runs
        if record.validity.status != "invalid" and record.measurement.input_alone_per_s is not None
    ]
    alone = statistics.median(told) if told else None
    of_base = summarize(base).rows[0].throughput
    limit: Literal["input", "training"] | None = None
    if alone is not None and of_base is not None:
        limit = "input" if alone < of_base else "training"
    of_synthetic, of_synthetic_ci95 = (None, None) if runs is base else ratio(runs, base)
    return Source(
        label=label,
        row=summarize(runs).rows[0],
        ratio=of_synthetic,
        ratio_ci95=of_synthetic_ci95,
        alone_per_s=alone,
        limit=limit,
        runs=tuple(record.run_id for _, record in runs),
    )


def _notes(sources: Sequence[Source], runs: Sequence[Run]) -> Iterator[str]:
    """What is wrong with single rows, and what else than the input differed between them."""
    yield from reasons(sources)
    classes = {record.trial.num_classes for _, record in runs if isinstance(record.trial, Trial)}
    if len(classes) > 1:
        counts = " and ".join(f"{count:,}" for count in sorted(count for count in classes if count is not None))
        yield f"the last layer has as many outputs as the data have classes: {counts}"
    yield from versions(runs, but="input")


class Source(Compared):
    """What a training was fed with, and what came of it; its ratio is to synthetic samples.

    Attributes:
        alone_per_s: samples a second that the input delivers by itself; None where the program does not tell.
        limit: what keeps the training from being faster; None where that is not known.
    """

    alone_per_s: float | None
    limit: Literal["input", "training"] | None


class InputReport(TrainingComparison):
    """One training on synthetic samples and on real ones: synthetic first, then by what decodes and by loader workers."""

    rows: tuple[Source, ...]
