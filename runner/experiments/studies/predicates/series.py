"""Predicates along an axis: `monotonic`, `order`, `ends`, `largest`, `smallest`, `hump`, `valley`, `differs`, `no_difference`. Pure.

A step counts if the 95 % interval of the difference excludes 0, or without one if it is more than 5 %. What goes one way may stand still within noise between two levels, but its
last has to lie beyond its first. Two levels are enough to tell a direction, three to tell a hump; how many of those asked for were
measured is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from runner.experiments.studies.evidence import Answer, Scene, amount, answer, shown, worded
from runner.experiments.studies.matching import TERMS, curves, freed, term, told_apart
from runner.experiments.studies.model import Observation
from runner.experiments.studies.noise import Amount, contrast, order
from runner.results.published.findings import Differs, Ends, Extreme, Hump, Level, Monotonic, NoDifference, Order
from runner.results.published.selector import Axis, Selector

_OF_A_HUMP: Final = 3
_TWO: Final = 2
_LISTED: Final = 4


def monotonic(predicate: Monotonic, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """Never the wrong way beyond noise, and further at the end than at the beginning."""
    up = predicate.direction == "increasing"
    answers = []
    for curve in _curves(pool, predicate.over, predicate.levels):
        wrong = [
            f"from {_at(a, predicate.over)} to {_at(b, predicate.over)}"
            for a, b in pairwise(curve.points)
            if order(amount(b), amount(a)) == ("below" if up else "above")
        ]
        ends = order(amount(curve.points[-1]), amount(curve.points[0]))
        holds = not wrong and ends == ("above" if up else "below")
        told = f", wrong way {' and '.join(wrong)}" if wrong else " (within noise)" if ends == "within noise" else ""
        answers.append(answer(holds, f"{curve.told}{told}", *curve.points))
    return answers or [_too_few(predicate.metric, predicate.over, predicate.levels, pool, scene)]


def ordered(predicate: Order, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """Each above the next one beyond noise."""
    answers = []
    for curve in _curves(pool, predicate.over, predicate.descending):
        holds = all(order(amount(a), amount(b)) == "above" for a, b in pairwise(curve.points))
        answers.append(answer(holds, curve.told, *curve.points))
    return answers or [_too_few(predicate.metric, predicate.over, predicate.descending, pool, scene)]


def ends(predicate: Ends, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """The first above all others beyond noise, and the last below them."""
    answers = []
    both = (predicate.first, predicate.last)
    for curve in _curves(pool, predicate.over, ()):
        by_level = {str(term(one, predicate.over)): one for one in curve.points}
        if not set(both) <= by_level.keys():
            continue
        first, last = (by_level[name] for name in both)
        others = [one for one in curve.points if one is not first]
        below = [one for one in curve.points if one is not last]
        holds = all(order(amount(first), amount(one)) == "above" for one in others) and all(
            order(amount(last), amount(one)) == "below" for one in below
        )
        answers.append(answer(holds, curve.told, *curve.points))
    return answers or [_too_few(predicate.metric, predicate.over, both, pool, scene)]


def extreme(predicate: Extreme, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """At one level beyond all others, beyond noise."""
    answers = []
    for curve in _curves(pool, predicate.over, ()):
        at = [one for one in curve.points if term(one, predicate.over) == predicate.at]
        others = [one for one in curve.points if one not in at]
        if not at or not others:
            continue
        side = "above" if predicate.type == "largest" else "below"
        holds = all(order(amount(at[0]), amount(one)) == side for one in others)
        answers.append(answer(holds, curve.told, *curve.points))
    return answers or [_too_few(predicate.metric, predicate.over, (predicate.at,), pool, scene)]


def hump(predicate: Hump, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """Beyond both ends in between, and on either side of that never the wrong way, all beyond noise; `near` allows one level more or less."""
    high = predicate.type == "hump"
    answers = []
    for curve in _curves(pool, predicate.over, predicate.levels, fewest=_OF_A_HUMP):
        points = curve.points
        values = [one.value for one in points]
        top = values.index(max(values) if high else min(values))
        wrong_before, wrong_after = ("below", "above") if high else ("above", "below")
        sides = all(order(amount(b), amount(a)) != wrong_before for a, b in pairwise(points[: top + 1])) and all(
            order(amount(b), amount(a)) != wrong_after for a, b in pairwise(points[top:])
        )
        beyond = all(order(amount(points[top]), amount(end)) == wrong_after for end in (points[0], points[-1]))
        levels = [term(one, predicate.over) for one in points]
        near = predicate.near is None or predicate.near not in levels or abs(levels.index(predicate.near) - top) <= 1
        turn = f", {'highest' if high else 'lowest'} at {levels[top]}"
        answers.append(answer(sides and beyond and near, f"{curve.told}{turn}", *points))
    return answers or [_too_few(predicate.metric, predicate.over, predicate.levels, pool, scene, needed=_OF_A_HUMP)]


def differs(predicate: Differs, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """Another than at each of the others, beyond noise and by more than counts (`noise.contrast`)."""
    answers = []
    for other in predicate.rhs:
        levels = (predicate.lhs, other)
        answers += _contrasted(predicate.metric, (predicate.over,), levels, pool, scene, wanted=True)
    return answers


def no_difference(predicate: NoDifference, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """Not another between any levels beyond noise, or by too little to count (`noise.contrast`)."""
    return _contrasted(predicate.metric, predicate.over, predicate.levels, pool, scene, wanted=False)


def _contrasted(
    metric: str,
    axes: Sequence[Axis],
    levels: Sequence[Level],
    pool: Sequence[Observation],
    scene: Scene,
    *,
    wanted: bool,
) -> list[Answer]:
    """An answer for each name that the metric has values of (calls, kernels), or one."""
    free = freed(axes)
    by_name: dict[str | None, dict[tuple[object, ...], dict[str, list[Observation]]]] = defaultdict(dict)
    for one in pool:
        values = tuple(term(one, axis) for axis in axes)
        if None in values or (levels and not set(values) <= set(levels)):
            continue
        block = by_name[one.name].setdefault(tuple(term(one, name) for name in TERMS if name not in free), {})
        block.setdefault(" ".join(map(str, values)), []).append(one)
    answers = []
    for name, own in by_name.items():
        blocks = [block for block in own.values() if len(block) > 1]
        if not blocks:
            continue
        found = contrast([_amounts(block) for block in blocks])
        used = [one for block in blocks for group in block.values() for one in group]
        distinct = list(dict.fromkeys(level for block in blocks for level in block))
        listed = " and ".join(distinct) if len(distinct) <= _LISTED else f"{len(distinct)} of {' and '.join(axes)}"
        apart = f"{listed} are {found.spread:.0%} apart"
        why = f"{name + ': ' if name else ''}{apart} ({found.how})"
        answers.append(answer(None if found.differs is None else found.differs is wanted, why, *used))
    return answers or [_too_few(metric, axes[0], levels, pool, scene)]


def _amounts(block: dict[str, list[Observation]]) -> dict[str, list[Amount]]:
    return {level: [amount(one) for one in group] for level, group in block.items()}


class _Curve:
    """The points of a curve in the order of their levels, and how a sentence lists them: `gpus 1, 2: 468, 894 images/s`."""

    def __init__(self, points: Sequence[Observation], axis: Axis, *, asked: int, label: str) -> None:
        self.points = tuple(points)
        some = f" ({len(points)} of {asked} levels)" if len(points) < asked else ""
        unit = self.points[0].unit
        values = ", ".join(shown(one).removesuffix(unit).rstrip() for one in self.points)
        levels = ", ".join(_at(one, axis) for one in self.points)
        self.told = f"{label}{axis} {levels}: {values}{'' if unit == 'x' else ' ' + unit}{some}"


def _curves(pool: Sequence[Observation], axis: Axis, levels: Sequence[Level], *, fewest: int = _TWO) -> list[_Curve]:
    """Those with enough points."""
    found = []
    all_curves = curves(pool, axis)
    for curve in all_curves:
        own = [one for one in curve if not levels or term(one, axis) in levels]
        if len(own) < fewest:
            continue
        ranks = {level: place for place, level in enumerate(levels)}
        own.sort(key=lambda one: _rank(one, axis, ranks))
        label = told_apart([one[0] for one in all_curves], curve[0], but=freed({axis}))
        found.append(_Curve(own, axis, asked=len(levels), label=f"{label}: " if label else ""))
    return found


def _rank(one: Observation, axis: Axis, ranks: dict[Level, int]) -> tuple[float, str]:
    level = term(one, axis)
    if isinstance(level, (int, float)) and not isinstance(level, bool):
        return float(level), ""
    return (float(ranks[level]), "") if level in ranks and isinstance(level, str) else (0.0, str(level))


def _at(one: Observation, axis: Axis) -> str:
    return str(term(one, axis))


def _too_few(
    metric: str, axis: Axis, levels: Sequence[Level], pool: Sequence[Observation], scene: Scene, *, needed: int = _TWO
) -> Answer:
    """Why there is no curve."""
    absent = scene.gpus_not_here([str(level) for level in levels]) if axis == "gpu" else ()
    if absent:
        return Answer(None, f"no {' and no '.join(absent)} here, but {scene.device_name}")
    if not pool:
        return Answer(None, scene.nothing(metric, Selector()))
    have = sorted({str(level) for one in pool if (level := term(one, axis)) is not None})
    of_which = f"of {', '.join(map(str, levels))}" if len(levels) >= needed else f"values of {worded(axis)}"
    what = f"{worded(metric)} is needed at {needed} or more {of_which}"
    return Answer(None, f"{what}, and was measured at {', '.join(have) or 'none'}")
