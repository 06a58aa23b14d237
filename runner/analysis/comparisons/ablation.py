"""Records on file → the `Ablation`s among them: runs of one training that differ in techniques, precision and batch only. Pure.

Lines stand in the order in which they gain: by precision, by how many techniques, by batch; each is held against the first, the plain
program where that ran, and against the line before. Whether a line still learns what the plain program learns is told by its losses on
real data against the plain program's from the same seed: they have to be no farther apart than those of two of its seeds are, step by
step and in the mean, which shows a line that learns a little less in every step.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Final, get_args

from runner.analysis.comparisons.alike import (
    Compared,
    Names,
    Run,
    TrainingComparison,
    alike,
    grouped,
    on_one_input,
    ratio,
    reasons,
    slug,
    software,
    trial_of,
    versions,
)
from runner.analysis.summarize import summarize
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.request import Precision, Technique
from runner.core.trial import Trial

_Stage = tuple[int, int, int, tuple[Technique, ...]]
"""A line: rank of its precision, how many techniques, batch of a device, and which techniques."""
Curve = tuple[float, ...]
"""Losses by step, the mean of the ranks."""

_OF_LINES: Final = frozenset({"techniques", "precision", "batch_per_device", "global_batch"})
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)
SMOOTHED: Final = 10
"""Steps that one compared loss is the mean of: single losses differ by batch."""
FEWEST_SEEDS: Final = 3


def ablations(runs: Sequence[Run]) -> tuple[Ablation, ...]:
    """Find what was trained with different techniques; passes under a profiler and trainings at once are left out.

    Args:
        runs: run directories and their records, in any order; invalid ones have no figure.
    """
    names = Names()
    found = []
    for own in alike(runs, but=_OF_LINES, wanted=lambda trial: trial.mode == "train", also=on_one_input):
        stages = grouped(own, _stage)
        if _differ(stages):
            found.append(_ablation(stages, name=names.take(_name(own[0]))))
    return tuple(found)


def _differ(stages: Collection[_Stage]) -> bool:
    """Whether techniques are told apart: against the plain program, or else at one precision and batch."""
    sets = Counter((precision, batch) for precision, _, batch, _ in stages)
    names = {techniques for *_, techniques in stages}
    return len(names) > 1 and (() in names or max(sets.values()) > 1)


def _stage(run: Run) -> _Stage:
    trial = trial_of(run)
    return PRECISIONS.index(trial.precision), len(trial.techniques), trial.batch_per_device, trial.techniques


def _name(run: Run) -> str:
    trial = trial_of(run)
    words = (
        *("ablation", *software(run), trial.model),
        *((f"{trial.image_size}px",) if trial.image_size else ()),
        *(() if trial.dataset is None else ("real",)),
        f"{trial.world_size}{trial.device}",
    )
    return slug(words)


def _ablation(stages: dict[_Stage, list[Run]], *, name: str) -> Ablation:
    order = list(stages)
    plain = summarize(stages[order[0]])
    lines: list[Line] = []
    for number, stage in enumerate(order):
        own, before = stages[stage], stages[order[number - 1]] if number else None
        lines.append(_line(own, first=stages[order[0]] if number else None, before=before, stages=stages))
    return Ablation(
        name=name,
        title=plain.title,
        setting=f"{plain.setting}, {plain.rows[0].devices}, in the first line",
        ran_on=plain.ran_on,
        unit=plain.rate_unit,
        rows=tuple(lines),
        notes=tuple(_notes(lines, [run for own in stages.values() for run in own])),
    )


def _line(
    runs: Sequence[Run], *, first: Sequence[Run] | None, before: Sequence[Run] | None, stages: dict[_Stage, list[Run]]
) -> Line:
    trial, row = trial_of(runs[0]), summarize(runs).rows[0]
    of_first, of_first_ci95 = ratio(runs, first or ())
    gain, gain_ci95 = ratio(runs, before or ())
    return Line(
        label=_label(trial, trial_of(before[0]) if before else None),
        row=row,
        ratio=of_first,
        ratio_ci95=of_first_ci95,
        gain=gain,
        gain_ci95=gain_ci95,
        losses=_losses(runs, stages),
        runs=tuple(record.run_id for _, record in runs),
    )


def _label(trial: Trial, before: Trial | None) -> str:
    """What a line has that the one before has not; all of it where it lacks something of that."""
    batch = f"batch {trial.batch_per_device}"
    lost = before is None or set(before.techniques) - set(trial.techniques)
    if before is None or lost:
        return ", ".join((trial.precision, *(trial.techniques or ("plain",)), batch))
    more = [*(() if trial.precision == before.precision else (trial.precision,))]
    more += [name for name in trial.techniques if name not in before.techniques]
    more += [] if trial.batch_per_device == before.batch_per_device else [batch]
    return f"+ {', '.join(more)}"


def _losses(runs: Sequence[Run], stages: dict[_Stage, list[Run]]) -> Losses | None:
    """How far a line's losses are from those of the plain program at the same batch and seed; None of that program itself."""
    trial, record = trial_of(runs[0]), runs[0][1]
    alike = [own for (_, _, batch, names), own in stages.items() if not names and batch == trial.batch_per_device]
    if trial.dataset is None or not alike or alike[0] is runs or record.validity.status == "invalid":
        return None
    seeds = {trial_of(run).seed: curve(run[1]) for run in alike[0] if run[1].validity.status != "invalid"}
    if len(seeds) < FEWEST_SEEDS or trial.seed not in seeds:
        return None
    steps = min(map(len, (*seeds.values(), own := curve(record))))
    if not steps:
        return None
    plain = {seed: losses[:steps] for seed, losses in seeds.items()}
    pairs = list(combinations(plain.values(), 2))
    return Losses(
        distance=distance(own[:steps], plain[trial.seed]),
        spread=max(distance(*pair) for pair in pairs),
        shift=shift(own[:steps], plain[trial.seed]),
        sway=max(abs(shift(*pair)) for pair in pairs),
        steps=steps * SMOOTHED,
        seeds=tuple(sorted(seeds)),
    )


def curve(record: RunRecord) -> Curve:
    """Means of ten losses in a row, from the first step on, over all ranks; ends before a loss that is not finite."""
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
    """What is wrong with single lines, and what else than the lines say differed between them."""
    for line in lines:
        yield from reasons([line])
        if line.losses and not line.losses.within:
            yield (
                f"{line.label}: over {line.losses.steps} steps its losses are {line.losses.distance:.3g} from the plain program's and "
                f"{line.losses.shift:+.3g} in the mean; its seeds are {line.losses.spread:.3g} and {line.losses.sway:.3g} from each other at most"
            )
    yield from versions(runs, but="techniques")


class Losses(Frozen):
    """How far a line's losses are from those of the plain program.

    Attributes:
        distance: root mean square of the differences from its losses with the same seed.
        spread: the most that this is between two of its seeds.
        shift: mean of the differences: above 0 where this line's losses are higher.
        sway: the most that this is between two of its seeds, whatever its sign.
        steps: from the first on, that were compared.
        seeds: of the plain program.
    """

    distance: float
    spread: float
    shift: float
    sway: float
    steps: int
    seeds: tuple[int, ...]

    @property
    def within(self) -> bool:
        """Whether another seed does as much."""
        return self.distance <= self.spread and abs(self.shift) <= self.sway


class Line(Compared):
    """What one more technique, precision or batch came to; its ratio is to the first line.

    Attributes:
        gain: throughput over that of the line before; None of the first, and unless both may be used.
        losses: None where the plain program has not been run with several seeds on this data and batch.
    """

    gain: float | None
    gain_ci95: Interval | None
    losses: Losses | None


class Ablation(TrainingComparison):
    """One training with techniques more a line: the one with the fewest first, the plain program where that ran."""

    rows: tuple[Line, ...]
