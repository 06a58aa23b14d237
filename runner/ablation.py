"""Records on file → the `Ablation`s among them: runs of one training that differ in techniques, precision and batch only. Pure.

Lines stand in the order in which they gain: by precision, by how many techniques, by batch; each is held against the first, the plain
program, and against the line before. Whether a line still learns what the plain program learns is told by its losses on real data, beside
those of the plain program from several seeds: it has to be as near to their mean as one of them is to the mean of the others.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

from runner import metrics
from runner.compare.identity import Identity, identity
from runner.report import figures
from runner.report.ablation import Ablation, Line, Losses
from runner.request import Precision, Technique
from runner.results import RunRecord
from runner.summarize import machine, summarize, usable_windows
from runner.trial import Trial

Run = tuple[Path, RunRecord]
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
    """Find what was trained plainly and with techniques; passes under a profiler and trainings at once are left out.

    Args:
        runs: run directories and their records, in any order; invalid ones have no figure.
    """
    kinds: dict[tuple[Identity, tuple[str, ...]], list[Run]] = {}
    for path, record in runs:
        trial = record.trial
        if isinstance(trial, Trial) and trial.mode == "train" and not record.profiled and not record.concurrent:
            kinds.setdefault(_kind(record, trial), []).append((path, record))
    names: dict[str, int] = {}
    found = []
    for own in kinds.values():
        stages = _stages(own)
        if len({techniques for *_, techniques in stages}) > 1 and any(not techniques for *_, techniques in stages):
            name = _name(own[0][1])
            names[name] = names.get(name, 0) + 1
            found.append(_ablation(stages, name=name if names[name] == 1 else f"{name}-{names[name]}"))
    return tuple(found)


def _kind(record: RunRecord, trial: Trial) -> tuple[Identity, tuple[str, ...]]:
    """All that the lines of an ablation have in common."""
    shared = tuple((name, value) for name, value in identity(record) if name not in _OF_LINES)
    return shared, (trial.version, record.engine, machine(record), str(trial.cpus_per_worker))


def _stages(runs: Sequence[Run]) -> dict[_Stage, list[Run]]:
    """Runs by line, the plain ones first."""
    found: dict[_Stage, list[Run]] = {}
    for path, record in runs:
        found.setdefault(_stage(record), []).append((path, record))
    return {stage: found[stage] for stage in sorted(found)}


def _stage(record: RunRecord) -> _Stage:
    trial = record.trial
    assert isinstance(trial, Trial)  # noqa: S101 - no other has a kind
    return PRECISIONS.index(trial.precision), len(trial.techniques), trial.batch_per_device, trial.techniques


def _name(record: RunRecord) -> str:
    trial = record.trial
    assert isinstance(trial, Trial)  # noqa: S101 - no other has a kind
    words = (
        *("ablation", trial.framework, trial.version, trial.model),
        *((f"{trial.image_size}px",) if trial.image_size else ()),
        *(() if trial.dataset is None else ("real",)),
        f"{trial.world_size}{trial.device}",
    )
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower())


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
        ground=figures.ground(plain),
        unit=figures.units(plain),
        lines=tuple(lines),
        notes=tuple(_notes(lines, [run for own in stages.values() for run in own])),
    )


def _line(
    runs: Sequence[Run], *, first: Sequence[Run] | None, before: Sequence[Run] | None, stages: dict[_Stage, list[Run]]
) -> Line:
    trial, row = _trial(runs), summarize(runs).rows[0]
    ratio, ratio_ci95 = _ratio(runs, first)
    gain, gain_ci95 = _ratio(runs, before)
    return Line(
        label=_label(trial, _trial(before) if before else None),
        row=row,
        ratio=ratio,
        ratio_ci95=ratio_ci95,
        gain=gain,
        gain_ci95=gain_ci95,
        losses=_losses(runs, stages),
        runs=tuple(record.run_id for _, record in runs),
    )


def _trial(runs: Sequence[Run]) -> Trial:
    trial = runs[0][1].trial
    assert isinstance(trial, Trial)  # noqa: S101 - no other has a kind
    return trial


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


def _ratio(runs: Sequence[Run], base: Sequence[Run] | None) -> tuple[float | None, metrics.Interval | None]:
    own = usable_windows([record for _, record in runs])
    other = usable_windows([record for _, record in base or ()])
    if not own or not other:
        return None, None
    return metrics.pooled_rate(own) / metrics.pooled_rate(other), metrics.ratio_interval(own, other)


def _losses(runs: Sequence[Run], stages: dict[_Stage, list[Run]]) -> Losses | None:
    """How far a line's losses are from those of the plain program at the same batch; None of that program itself."""
    trial = _trial(runs)
    alike = [own for (_, _, batch, names), own in stages.items() if not names and batch == trial.batch_per_device]
    if trial.dataset is None or not alike or alike[0] is runs:
        return None
    plain = alike[0]
    seeds = {_trial([run]).seed: curve(run[1]) for run in plain}
    curves = [one for one in seeds.values() if one]
    own = curve(runs[0][1])
    if len(curves) < FEWEST_SEEDS or not own:
        return None
    steps = min(map(len, (*curves, own)))
    spread = max(distance(one[:steps], mean([other[:steps] for other in curves if other is not one])) for one in curves)
    near = distance(own[:steps], mean([one[:steps] for one in curves]))
    return Losses(distance=near, spread=spread, steps=steps * SMOOTHED, seeds=tuple(sorted(seeds)))


def curve(record: RunRecord) -> Curve:
    """Means of ten losses in a row, from the first step on, over all ranks; ends before a loss that is not finite."""
    ranks = list(record.measurement.losses.values())
    steps = [statistics.fmean(step) if None not in step else math.nan for step in zip(*ranks, strict=False)]
    whole = [steps[start : start + SMOOTHED] for start in range(0, len(steps) - SMOOTHED + 1, SMOOTHED)]
    found = [statistics.fmean(part) for part in whole]
    return tuple(found[: next((number for number, value in enumerate(found) if not math.isfinite(value)), len(found))])


def mean(curves: Sequence[Curve]) -> Curve:
    """Step by step."""
    return tuple(statistics.fmean(step) for step in zip(*curves, strict=True))


def distance(one: Curve, other: Curve) -> float:
    """Root mean square of the differences."""
    return math.sqrt(statistics.fmean((a - b) ** 2 for a, b in zip(one, other, strict=True)))


def _notes(lines: Sequence[Line], runs: Sequence[Run]) -> Iterator[str]:
    """What is wrong with single lines, and what else than the lines say differed between them."""
    for line in lines:
        if line.row.reasons:
            yield f"{line.label} {line.row.status}: {'; '.join(line.row.reasons)}"
        if line.losses and not line.losses.within:
            yield (
                f"{line.label}: its losses are {line.losses.distance:.3g} from the plain program's mean over {line.losses.steps} steps, more than "
                f"another seed's {line.losses.spread:.3g}"
            )
    for what, found in (
        ("training programs", {record.provenance.workloads_sha256 for _, record in runs}),
        ("locked requirements", {record.image.lock_sha256 for _, record in runs}),
    ):
        if len(found) > 1:
            yield f"{len(found)} versions of the {what} were run: not the techniques alone differ"
