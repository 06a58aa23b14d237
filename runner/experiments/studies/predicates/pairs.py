"""Predicates that hold one figure against another: `compare` and `ratio`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from runner.experiments.studies.evidence import BY_DEFINITION, Answer, Scene, amount, answer, shown, worded, written
from runner.experiments.studies.matching import described, differing, expand, partners, selects, term, told_apart
from runner.experiments.studies.model import Observation
from runner.experiments.studies.noise import Order, order, ratio
from runner.results.published.findings import Compare, Comparison, Ratio
from runner.results.published.selector import Selector

_HOLDS: Final[dict[Comparison, frozenset[Order]]] = {
    "<": frozenset({"below"}),
    ">": frozenset({"above"}),
    "<=": frozenset({"below", "equal", "within noise"}),
    ">=": frozenset({"above", "equal", "within noise"}),
}

Pair = tuple[Observation, Observation]


def compare(predicate: Compare, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """A strict comparison holds if `noise.order` says so; `<=` and `>=` unless it says the opposite."""
    answers = []
    for lhs, rhs in _sides(predicate.lhs, predicate.rhs):
        pairs = list(pairs_of(lhs, rhs, pool, same=predicate.same))
        for left, right in pairs:
            stands = order(amount(left), amount(right))
            noise = " (within noise)" if stands == "within noise" else ""
            why = f"{_label(left, right, lhs, pairs)}{shown(left)} against {shown(right)}{noise}"
            answers.append(answer(stands in _HOLDS[predicate.op], why, left, right))
        if not pairs:
            answers.append(_no_pair(predicate.metric, lhs, rhs, pool, scene))
    return answers


def ratio_is(predicate: Ratio, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """Whether num ÷ den is within the tolerance; its interval is told, and does not widen it."""
    answers = []
    for num, den in _sides(predicate.num, predicate.den):
        pairs = list(pairs_of(num, den, pool))
        for above, below in pairs:
            made = ratio(amount(above), amount(below))
            if made is None:
                answers.append(Answer(None, f"{_label(above, below, num, pairs)}÷ 0"))
                continue
            wanted = float(predicate.value)
            near = abs(made.value / wanted - 1) <= predicate.rel_tol
            target = f"{'within' if near else 'not within'} {predicate.rel_tol:.0%} of {wanted:g}"
            why = f"{_label(above, below, num, pairs)}{written(made, 'x')}, {target}"
            answers.append(answer(near, why, above, below))
        if not pairs:
            answers.append(_no_pair(predicate.metric, num, den, pool, scene))
    return answers


def pairs_of(lhs: Selector, rhs: Selector, pool: Sequence[Observation], *, same: Sequence[str] = ()) -> Iterator[Pair]:
    """Figures of both sides that are nearest to each other, and differ in nothing but what the sides name.

    A CPU that stands for GPUs is held against other such, never against what the source ran on a CPU: both would be the same machine.
    """
    free = differing(lhs, rhs)
    measured = [one for one in pool if one.method != BY_DEFINITION]
    left = [one for one in measured if selects(lhs, one)]
    right = [one for one in measured if selects(rhs, one)]
    for one in left:
        for other in partners(one, right, free=free, same=same):
            back = partners(other, left, free=free, same=same)
            if other is not one and one in back and not _stands_for_a_gpu(one, other):
                yield one, other


def _stands_for_a_gpu(one: Observation, other: Observation) -> bool:
    on_cpu, its = term(one, "device") == "cpu", term(other, "device") == "cpu"
    return on_cpu != its and (other if on_cpu else one).device == "cpu"


def _sides(lhs: Selector, rhs: Selector) -> Iterator[tuple[Selector, Selector]]:
    """Both sides value by value; a condition that both allow the same values of is the same on both."""
    left, right = lhs.stated, rhs.stated
    shared = [name for name, values in left.items() if right.get(name) == values]
    for one in expand(lhs):
        for other in expand(rhs):
            if all(getattr(one, name) == getattr(other, name) for name in shared):
                yield one, other


def _label(one: Observation, other: Observation, lhs: Selector, pairs: Sequence[Pair]) -> str:
    """Which pair it is, where the predicate has several."""
    apart = told_apart([pair[0] for pair in pairs], one)
    words = ", ".join(dict.fromkeys(word for word in (described(lhs), apart) if word))
    against = told_apart([pair[1] for pair in pairs if pair[0] is one], other)
    return f"{words}{' against ' + against if against else ''}: " if words or against else ""


def _no_pair(metric: str, lhs: Selector, rhs: Selector, pool: Sequence[Observation], scene: Scene) -> Answer:
    for selector in (lhs, rhs):
        if not any(selects(selector, one) for one in pool):
            return Answer(None, scene.nothing(metric, selector))
    if scene.device == "cpu" and "device" in differing(lhs, rhs):
        return Answer(None, f"a GPU is to be held against a CPU, and here is only {scene.device_name}")
    return Answer(
        None, f"no {worded(metric)} of {described(lhs)} and of {described(rhs)} under otherwise the same conditions"
    )
