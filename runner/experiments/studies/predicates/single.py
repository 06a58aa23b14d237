"""Predicates on figures by themselves: `bound`, `approximately`, `steady`, `constant_product`, `quotient`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from runner.analysis.grading.metrics import MIN_STEADY_WINDOWS, STEADY_TOLERANCE, GlobalWindows, drift_of, steadiness
from runner.experiments.studies.evidence import (
    BY_DEFINITION,
    Answer,
    Scene,
    answer,
    digits,
    in_unit,
    shown,
    worded,
    written,
)
from runner.experiments.studies.matching import curves, expand, partners, selects, term, told_apart
from runner.experiments.studies.model import Observation
from runner.experiments.studies.noise import Amount, order
from runner.results.published.findings import Approximately, Bound, Product, Quotient, Steady

_SAMPLES: Final = "samples_per_run"


def bound(predicate: Bound, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """On the right side of the value beyond noise (`<`, `>`), or not on the wrong one (`<=`, `>=`); `in`: the figure between both, ends included."""
    own = [one for one in pool if selects(predicate.select, one) and one.method != BY_DEFINITION]
    answers = []
    for one in own:
        figure = in_unit(one, predicate.unit)
        label = told_apart(own, one)
        why = f"{label + ': ' if label else ''}{written(figure, predicate.unit)}"
        answers.append(answer(_within(predicate, figure), why, one))
    return answers or [Answer(None, scene.nothing(predicate.metric, predicate.select))]


def _within(predicate: Bound, figure: Amount) -> bool:
    if isinstance(predicate.value, tuple):
        low, high = (float(end) for end in predicate.value)
        return low <= figure.value <= high
    stands = order(figure, Amount(float(predicate.value), exact=True))
    return {
        "<": stands == "below",
        ">": stands == "above",
        "<=": stands != "above",
        ">=": stands != "below",
    }[predicate.op]


def approximately(predicate: Approximately, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """The figure is the value, give or take the tolerance."""
    own = [one for one in pool if selects(predicate.select, one)]
    answers = []
    for one in own:
        figure = in_unit(one, predicate.unit)
        label = told_apart(own, one)
        near = abs(figure.value - float(predicate.value)) <= predicate.abs_tol
        why = f"{label + ': ' if label else ''}{written(figure, predicate.unit)}"
        answers.append(answer(near, why, one))
    return answers or [Answer(None, scene.nothing(predicate.metric, predicate.select))]


def steady(predicate: Steady, scene: Scene) -> list[Answer]:
    """The later half of the windows is within 5 % of the earlier, once those that warm up are left out (`metrics.steadiness`).

    After a number of iterations none is left out; and with a `window` of them, the first window that holds as many is within 5 % of all.
    """
    answers = []
    for selector in expand(predicate.for_all):
        found: dict[tuple[object, ...], list[Observation]] = {}
        for one in scene.over_time(predicate.metric, selector):
            found.setdefault((one.where, one.case), []).append(one)
        curves_ = list(found.values())
        firsts = [curve[0] for curve in curves_]
        answers += [_settled(predicate, curve, told_apart(firsts, curve[0])) for curve in curves_]
    if answers:
        return answers
    return [Answer(None, scene.nothing(f"{predicate.metric} over time", predicate.for_all))]


def _settled(predicate: Steady, curve: Sequence[Observation], label: str) -> Answer:
    after = predicate.after_iterations or 0
    length = (curve[1].iterations or 0) - (curve[0].iterations or 0) if len(curve) > 1 else 0
    kept = [one for one in curve if (one.iterations or 0) - length >= after]
    prefix = f"{label}: " if label else ""
    last = curve[-1].iterations or 0
    if len(kept) < MIN_STEADY_WINDOWS:
        needed = f"{last} iterations were run" if last <= after else f"{len(kept)} windows are left"
        of_which = f"those after {after}" if after else f"{MIN_STEADY_WINDOWS} windows or more"
        return Answer(None, f"{prefix}{needed}, and it speaks of {of_which}")
    seconds = np.array([1 / one.value if predicate.metric == "throughput" else one.value for one in kept])
    windows = GlobalWindows(np.ones(len(seconds)), seconds)
    if after:
        drift = drift_of(windows)
        holds = abs(drift) <= STEADY_TOLERANCE
    else:
        state = steadiness(windows, most_left_out=1.0)  # a source says of no time how long its `after a while` is
        drift, holds = state.drift, state.steady
    why = f"{prefix}later half {drift:+.1%} off the earlier over {len(kept)} windows"
    if after and predicate.window:
        share = float(seconds[0] / seconds.mean() - 1)
        holds = holds and abs(share) <= STEADY_TOLERANCE
        why += f"; the first one {share:+.1%} off all"
    return answer(holds, why, *kept)


def constant_product(predicate: Product, scene: Scene) -> list[Answer]:
    """Every run of a curve had as many samples, give or take one global batch, since iterations are whole."""
    answers = []
    for selector in expand(predicate.for_all):
        pool = [one for one in scene.of(_SAMPLES, selector) if _is_of_gpus(one)]
        found = [curve for curve in curves(pool, predicate.over) if len(curve) > 1]
        for curve in found:
            values = [one.value for one in curve]
            whole = max(_batch(one) for one in curve)
            label = told_apart([one[0] for one in found], curve[0], but={predicate.over, "batch"})
            levels = ", ".join(str(term(one, predicate.over)) for one in curve)
            why = f"{label + ': ' if label else ''}{predicate.over} {levels}: {', '.join(map(digits, values))} samples"
            answers.append(answer(max(values) - min(values) <= whole, why, *curve))
    if answers:
        return answers
    return [Answer(None, scene.nothing(_SAMPLES, predicate.for_all))]


def _is_of_gpus(one: Observation) -> bool:
    return bool(term(one, "gpus"))


def _batch(one: Observation) -> int:
    """Global batch; 0 where it is not known, so that products have to be equal."""
    return one.where.global_batch or 0


def quotient(predicate: Quotient, scene: Scene) -> list[Answer]:
    """Each `whole` against its own numerator and denominator."""
    wholes = scene.of(predicate.whole)
    answers = []
    for whole in wholes:
        above = partners(whole, scene.of(predicate.numerator), free=frozenset())
        below = partners(whole, scene.of(predicate.denominator), free=frozenset())
        if len(above) != 1 or len(below) != 1 or below[0].value == 0:
            continue
        made = above[0].value / below[0].value
        holds = abs(made / whole.value - 1) <= predicate.rel_tol
        label = told_apart(wholes, whole)
        why = f"{label + ': ' if label else ''}{shown(whole)} against {digits(made)}"
        answers.append(answer(holds, why, whole, above[0], below[0]))
    missing = (
        f"no {worded(predicate.whole)} with both {worded(predicate.numerator)} and {worded(predicate.denominator)}"
    )
    return answers or [Answer(None, missing)]
