"""Records on file → the `Ablation`s among them: runs of one training that differ in techniques, precision and batch only. Pure.

Lines are sorted by precision, number of techniques and batch; each is compared with the first line (the plain program, if it ran at the
first precision) and with the previous one. A line learns what the plain program learns if its losses on real data differ from the plain
program's with the same seed by no more than those of two plain seeds do, both in root mean square and in the mean: the mean exposes a line
that learns slightly less in every step.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Final, get_args

from runner.analysis.comparisons import grouping
from runner.analysis.comparisons.grouping import Compared, Run, TrainingComparison, trial_of
from runner.analysis.summarize import summarize
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.request import Precision, Technique
from runner.core.trial import Trial

_Stage = tuple[int, int, int, tuple[Technique, ...]]
"""Sort key of a line: index of its precision, number of techniques, batch per device, techniques."""
Curve = tuple[float, ...]
"""Losses in step order, averaged over ranks and `SMOOTHED` steps."""

_VARIED: Final = frozenset({"techniques", "precision", "batch_per_device", "global_batch"})
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)
SMOOTHED: Final = 10
"""Steps averaged into one compared loss: single losses vary with the batch."""
FEWEST_SEEDS: Final = 3


class Losses(Frozen):
    """Distance of a line's losses from those of the plain program with the same seed."""

    distance: float  # root mean square of the differences
    spread: float  # largest distance between two seeds of the plain program
    shift: float  # mean difference: above 0 if this line's losses are higher
    shift_spread: float  # largest absolute shift between two of those seeds
    steps: int  # compared, from the first

    @property
    def within(self) -> bool:
        """Whether another seed of the plain program differs as much."""
        return self.distance <= self.spread and abs(self.shift) <= self.shift_spread


class Line(Compared):
    """One line's result; its ratio is to the first line, its gain to the previous one.

    `losses` is None on synthetic data, for the plain program, and unless that ran with `FEWEST_SEEDS` seeds, this one's among them.
    """

    gain: float | None
    gain_ci95: Interval | None
    losses: Losses | None


class Ablation(TrainingComparison):
    """One training, a line per precision, set of techniques and batch; the plain program first, if it ran at the first precision."""

    rows: tuple[Line, ...]


def ablations(runs: Sequence[Run]) -> tuple[Ablation, ...]:
    """Find the trainings that ran with different techniques."""
    found = grouping.in_settings(
        runs,
        but=_VARIED,
        wanted=lambda trial: trial.mode == "train",
        also=grouping.on_one_input,
        setting=_stage,
        differ=_differ,
        name=_name,
    )
    return tuple(_ablation(stages, name=name) for name, stages in found)


def _differ(stages: Collection[_Stage]) -> bool:
    """Whether the lines compare techniques: with the plain program, or else at one precision and batch."""
    sets = Counter((precision, batch) for precision, _, batch, _ in stages)
    names = {techniques for *_, techniques in stages}
    return len(names) > 1 and (() in names or max(sets.values()) > 1)


def _stage(run: Run) -> _Stage:
    trial = trial_of(run)
    return PRECISIONS.index(trial.precision), len(trial.techniques), trial.batch_per_device, trial.techniques


def _name(run: Run) -> str:
    trial = trial_of(run)
    data = () if trial.dataset is None else ("real",)
    scale = f"{trial.world_size}{trial.device}"
    return grouping.slug(("ablation", *grouping.software(run), trial.model, *grouping.pixels(trial), *data, scale))


def _ablation(stages: dict[_Stage, list[Run]], *, name: str) -> Ablation:
    own = list(stages.values())
    lines = []
    previous: list[Run] = []
    for runs in own:
        gain, gain_ci95 = grouping.ratio(runs, previous)
        row = grouping.compared(_label(trial_of(runs[0]), trial_of(previous[0]) if previous else None), runs, own[0])
        lines.append(Line(**vars(row), gain=gain, gain_ci95=gain_ci95, losses=_losses(runs, stages)))
        previous = runs
    heading = grouping.heading(name, summarize(own[0]))
    return Ablation(
        **heading | {"setting": f"{heading['setting']}, in the first line"},
        rows=tuple(lines),
        notes=tuple(_notes(lines, [run for runs in own for run in runs])),
    )


def _label(trial: Trial, previous: Trial | None) -> str:
    """What a line adds to the previous one; its whole setting if it lacks a technique of that line."""
    batch = f"batch {trial.batch_per_device}"
    if previous is None or set(previous.techniques) - set(trial.techniques):
        return ", ".join((trial.precision, *(trial.techniques or ("plain",)), batch))
    more = [*(() if trial.precision == previous.precision else (trial.precision,))]
    more += [name for name in trial.techniques if name not in previous.techniques]
    more += [] if trial.batch_per_device == previous.batch_per_device else [batch]
    return f"+ {', '.join(more)}"


def _losses(runs: Sequence[Run], stages: dict[_Stage, list[Run]]) -> Losses | None:
    """Compare a line's losses with the plain program's at the same batch and seed; None if there is nothing to compare."""
    trial, record = trial_of(runs[0]), runs[0][1]
    plain = [own for (_, _, batch, names), own in stages.items() if not names and batch == trial.batch_per_device]
    if trial.dataset is None or not plain or plain[0] is runs or record.validity.status == "invalid":
        return None
    seeds = {trial_of(run).seed: curve(run[1]) for run in plain[0] if run[1].validity.status != "invalid"}
    if len(seeds) < FEWEST_SEEDS or trial.seed not in seeds:
        return None
    steps = min(map(len, (*seeds.values(), own := curve(record))))
    if not steps:
        return None
    curves = {seed: losses[:steps] for seed, losses in seeds.items()}
    pairs = list(combinations(curves.values(), 2))
    return Losses(
        distance=distance(own[:steps], curves[trial.seed]),
        spread=max(distance(*pair) for pair in pairs),
        shift=shift(own[:steps], curves[trial.seed]),
        shift_spread=max(abs(shift(*pair)) for pair in pairs),
        steps=steps * SMOOTHED,
    )


def curve(record: RunRecord) -> Curve:
    """Means of ten consecutive losses from the first step on, over all ranks; ends before a non-finite loss."""
    ranks = list(record.measurement.losses.values())
    steps = [statistics.fmean(step) if None not in step else math.nan for step in zip(*ranks, strict=False)]
    whole = [steps[start : start + SMOOTHED] for start in range(0, len(steps) - SMOOTHED + 1, SMOOTHED)]
    found = [statistics.fmean(part) for part in whole]
    return tuple(found[: next((number for number, value in enumerate(found) if not math.isfinite(value)), len(found))])


def distance(one: Curve, other: Curve) -> float:
    """Root mean square of the differences."""
    return math.sqrt(statistics.fmean((a - b) ** 2 for a, b in zip(one, other, strict=True)))


def shift(one: Curve, other: Curve) -> float:
    """Mean of the differences."""
    return statistics.fmean(a - b for a, b in zip(one, other, strict=True))


def _notes(lines: Sequence[Line], runs: Sequence[Run]) -> Iterator[str]:
    """Yield problems of single lines, and unintended differences between the runs."""
    for line in lines:
        yield from grouping.reasons([line])
        if line.losses and not line.losses.within:
            yield (
                f"{line.label}: over {line.losses.steps} steps its losses are {line.losses.distance:.3g} from the plain program's and "
                f"{line.losses.shift:+.3g} in the mean; its seeds are {line.losses.spread:.3g} and {line.losses.shift_spread:.3g} from each other at most"
            )
    yield from grouping.versions(runs, but="techniques")
