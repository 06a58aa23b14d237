"""Test a source's findings on observations: each `holds`, `does not hold`, is `undecided` or `not testable here`. Pure.

A difference within noise neither shows that a finding holds nor that it does not.

With degraded runs, fewer than three runs of a cell, or a figure without an interval, the verdict is `indicated` or `not indicated`.

A finding is tested for each combination of the values in its `for_all`; one failing case fails it. One without a mode is about training, if there
are such figures; one without a network is about the fastest. A finding about all GPUs of a source is tested on the GPU here, one about
some of them only on those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from runner.analysis.grading.metrics import MIN_STEADY_WINDOWS, STEADY_TOLERANCE, GlobalWindows, drift_of, steadiness
from runner.experiments.studies.evidence import (
    BY_DEFINITION,
    CONDITIONS,
    Answer,
    Evidence,
    amount,
    amount_text,
    answer,
    best_matches,
    combined,
    condition,
    curves,
    differing_conditions,
    distinction,
    expand,
    figure_text,
    in_unit,
    joint,
    joint_doubts,
    metric_text,
    mode,
    selector_text,
    selects,
    varying_with,
)
from runner.experiments.studies.model import INDICATED, FindingVerdict, Judgement, Observation
from runner.experiments.studies.noise import NEGLIGIBLE, Amount, contrast, order, ratio
from runner.experiments.studies.noise import Order as Standing
from runner.results.published.findings import (
    All,
    Axis,
    Bound,
    Compare,
    Comparison,
    Finding,
    Level,
    Monotonic,
    Named,
    NoDifference,
    Order,
    Predicate,
    Ratio,
    Selector,
    Steady,
)

_HOLDS: Final[dict[Comparison, frozenset[Standing]]] = {
    "<": frozenset({"below"}),
    ">": frozenset({"above"}),
    "<=": frozenset({"below", "equal", "within noise"}),
    ">=": frozenset({"above", "equal", "within noise"}),
}
_MOST_LISTED: Final = 4
"""Most levels that a sentence names one by one."""

Pair = tuple[Observation, Observation]
_MetricPredicate = Monotonic | Compare | Ratio | Bound | Order | NoDifference | Named


def judged(finding: Finding, evidence: Evidence) -> Judgement:
    """Return the verdict on a finding."""
    found = answer_predicate(finding.predicate, evidence)
    verdict: FindingVerdict = "holds" if found.holds else "does not hold"
    if found.holds is None:
        verdict = "undecided" if found.runs else "not testable here"
    return Judgement(
        finding=finding,
        verdict=INDICATED.get(verdict, verdict) if found.doubts else verdict,
        why=found.why,
        runs=found.runs,
        doubts=found.doubts if verdict in INDICATED else (),
    )


def answer_predicate(predicate: Predicate, evidence: Evidence) -> Answer:
    """Answer a predicate from observations."""
    if isinstance(predicate, All):
        return _conjunction([answer_predicate(part, evidence) for part in predicate.of])
    if isinstance(predicate, Steady):
        return combined(_steady(predicate, evidence))
    for_all, on = _cases_and_device(predicate.for_all, evidence)
    found = combined([one for case in expand(for_all) for one in _case(predicate, case, evidence, of=for_all)])
    return replace(found, why=f"{found.why} ({on})") if on and found.runs else found


def _conjunction(parts: Sequence[Answer]) -> Answer:
    """Combine a conjunction: decided only if all parts are, or if one fails."""
    failed = [part for part in parts if part.holds is False]
    undecided = [part for part in parts if part.holds is None]
    why = "; ".join(dict.fromkeys(part.why for part in failed or parts))
    testable = failed or all(part.runs for part in parts)
    runs = tuple(dict.fromkeys(run for part in parts for run in part.runs)) if testable else ()
    holds = joint([part.holds for part in parts])
    return Answer(holds=holds, why=why, runs=runs, doubts=joint_doubts(failed or undecided or list(parts)))


def _cases_and_device(for_all: Selector, evidence: Evidence) -> tuple[Selector, str | None]:
    """Return the cases to test, and the device to report if it is not one of the source's GPUs.

    The finding's GPUs are dropped if they include all GPUs of some block of the source's runs, and if none of them is here.
    """
    if not for_all.gpu or len(absent := evidence.absent_gpus(for_all.gpu)) < len(for_all.gpu):
        return for_all, None
    blocks = [
        set(runs.gpu)
        for runs in evidence.published.runs
        if runs.gpu and (not for_all.model or set(for_all.model) & set(runs.models))
    ]
    if not any(gpus <= set(for_all.gpu) for gpus in blocks):
        return for_all, None
    return for_all.model_copy(update={"gpu": None}), f"on {evidence.device_name} in place of {' and '.join(absent)}"


def _case(predicate: _MetricPredicate, case: Selector, evidence: Evidence, *, of: Selector) -> list[Answer]:
    """Test one combination of the values that `for_all` allows; if there are several, each answer is labelled with its combination."""
    many = {name for name, values in of.stated.items() if len(values) > 1}
    label = selector_text(
        Selector.model_validate({name: values for name, values in case.stated.items() if name in many})
    )
    label = label.replace(",", "")  # commas separate cases
    pool = evidence.of(predicate.metric, case.model_copy(update={"state": None}))
    if isinstance(predicate, Compare | Ratio):  # their sides name the state
        pool += evidence.of(predicate.metric, case.model_copy(update={"state": "idle"}))
    if not pool:
        return [Answer(None, evidence.why_absent(predicate.metric, case, case=many), case=label)]
    own = replace(evidence, cells=[run for run in evidence.cells if evidence.covers(case, run)])
    answers: list[Answer] = []
    for some in _by_mode(predicate, _over_the_fastest(predicate, pool, evidence)):
        answers = _test(predicate, some, own)
        if any(one.holds is not None for one in answers):
            break
    return [replace(one, case=label) for one in answers]


def _over_the_fastest(
    predicate: _MetricPredicate, pool: Sequence[Observation], evidence: Evidence
) -> Sequence[Observation]:
    """If a predicate names no network, keep runs on one node, over an unnamed network, or over the fastest of the named ones."""
    if any(selector.network for selector in predicate.selectors):
        return pool
    speeds = {wire.id: wire.gbit_s or 0.0 for wire in evidence.published.hardware.wires}
    between = {one.where.network for one in pool if one.where.network and (one.where.nodes or 1) > 1}
    fastest = max(between, key=lambda name: speeds.get(name, 0.0), default=None)
    return tuple(one for one in pool if (one.where.nodes or 1) == 1 or one.where.network in {None, fastest})


def _by_mode(predicate: _MetricPredicate, pool: Sequence[Observation]) -> list[Sequence[Observation]]:
    """Return the figures to try in turn, training before inference, or all in one if the predicate concerns the mode."""
    if isinstance(predicate, NoDifference) and "mode" in predicate.over:
        wanted = {mode(str(level)) for level in predicate.levels}
        return [tuple(one for one in pool if not wanted or condition(one, "mode") in wanted)]
    over = predicate.over if isinstance(predicate, Monotonic | Order) else None
    if over == "mode" or any(selector.mode for selector in predicate.selectors):
        return [pool]
    training = tuple(one for one in pool if condition(one, "mode") in {None, "training"})
    rest = tuple(one for one in pool if one not in training)
    return [some for some in (training, rest) if some]


def _test(predicate: _MetricPredicate, pool: Sequence[Observation], evidence: Evidence) -> list[Answer]:
    if isinstance(predicate, Compare):
        return _answer_pairs(predicate, predicate.lhs, predicate.rhs, pool, evidence)
    if isinstance(predicate, Ratio):
        return _answer_pairs(predicate, predicate.num, predicate.den, pool, evidence)
    if isinstance(predicate, Monotonic | Order):
        return _answer_curves(predicate, pool, evidence)
    if isinstance(predicate, NoDifference):
        return _no_difference(predicate, pool, evidence)
    return _bound(predicate, pool, evidence) if isinstance(predicate, Bound) else _named(predicate, pool)


def _answer_pairs(
    predicate: Compare | Ratio, lhs: Selector, rhs: Selector, pool: Sequence[Observation], evidence: Evidence
) -> list[Answer]:
    """Answer for every pair of comparable figures."""
    answers = []
    for left, right in _sides(lhs, rhs):
        pairs = list(pairs_of(left, right, pool, same=predicate.same if isinstance(predicate, Compare) else ()))
        for one, other in pairs:
            label = _pair_label(one, other, left, pairs)
            test = _compare if isinstance(predicate, Compare) else _ratio
            answers.append(test(predicate, one, other, label))  # type: ignore[arg-type]
        if not pairs:
            answers.append(_no_pair(predicate.metric, left, right, pool, evidence))
    return answers


def _compare(predicate: Compare, left: Observation, right: Observation, label: str) -> Answer:
    """Test a comparison: a strict one holds if `noise.order` says so, `<=` and `>=` unless it says the opposite."""
    ordered = order(amount(left), amount(right))
    noise = " (within noise)" if ordered == "within noise" else ""
    why = f"{label}{figure_text(left)} against {figure_text(right)}{noise}"
    return answer(_holds(ordered, predicate.op), why, left, right)


def _holds(ordered: Standing, op: Comparison) -> bool | None:
    """Whether `<`, `>`, `<=` or `>=` holds; None for a strict one within noise."""
    return ordered in _HOLDS[op] or (None if ordered == "within noise" else False)


def _ratio(predicate: Ratio, above: Observation, below: Observation, label: str) -> Answer:
    """Test whether num ÷ den is within the tolerance; its interval is shown, but does not widen the tolerance."""
    made = ratio(amount(above), amount(below))
    if made is None:
        return Answer(None, f"{label}÷ 0")
    wanted = float(predicate.value)
    near = abs(made.value / wanted - 1) <= predicate.rel_tol
    target = f"{'within' if near else 'not within'} {predicate.rel_tol:.0%} of {wanted:g}"
    return answer(near, f"{label}{amount_text(made, 'x')}, {target}", above, below)


def pairs_of(lhs: Selector, rhs: Selector, pool: Sequence[Observation], *, same: Sequence[str] = ()) -> Iterator[Pair]:
    """Yield the figures of both sides that match each other best, and differ only in what the sides name.

    A CPU that stands for GPUs is compared with other such CPUs only, never with what the source ran on a CPU: both would be the same machine.
    """
    may_differ = differing_conditions(lhs, rhs)
    measured = [one for one in pool if one.method != BY_DEFINITION]
    left = [one for one in measured if selects(lhs, one)]
    right = [one for one in measured if selects(rhs, one)]
    for one in left:
        for other in best_matches(one, right, may_differ=may_differ, same=same):
            back = best_matches(other, left, may_differ=may_differ, same=same)
            if other is not one and one in back and not _mixes_cpu_and_stand_in(one, other):
                yield one, other


def _mixes_cpu_and_stand_in(one: Observation, other: Observation) -> bool:
    on_cpu, other_on_cpu = condition(one, "device") == "cpu", condition(other, "device") == "cpu"
    return on_cpu != other_on_cpu and (other if on_cpu else one).device == "cpu"


def _sides(lhs: Selector, rhs: Selector) -> Iterator[tuple[Selector, Selector]]:
    """Yield both sides value by value; a condition with the same values on both sides has the same value on both."""
    left, right = lhs.stated, rhs.stated
    shared = [name for name, values in left.items() if right.get(name) == values]
    for one in expand(lhs):
        for other in expand(rhs):
            if all(getattr(one, name) == getattr(other, name) for name in shared):
                yield one, other


def _pair_label(one: Observation, other: Observation, lhs: Selector, pairs: Sequence[Pair]) -> str:
    apart = distinction([pair[0] for pair in pairs], one)
    words = ", ".join(dict.fromkeys(word for word in (selector_text(lhs), apart) if word))
    against = distinction([pair[1] for pair in pairs if pair[0] is one], other)
    return f"{words}{' against ' + against if against else ''}: " if words or against else ""


def _no_pair(metric: str, lhs: Selector, rhs: Selector, pool: Sequence[Observation], evidence: Evidence) -> Answer:
    for selector in (lhs, rhs):
        if not any(selects(selector, one) for one in pool):
            return Answer(None, evidence.why_absent(metric, selector))
    if evidence.device == "cpu" and "device" in differing_conditions(lhs, rhs):
        return Answer(None, f"a GPU is to be held against a CPU, and here is only {evidence.device_name}")
    sides = f"{selector_text(lhs)} and of {selector_text(rhs)}"
    return Answer(None, f"no {metric_text(metric)} of {sides} under otherwise the same conditions")


def _answer_curves(predicate: Monotonic | Order, pool: Sequence[Observation], evidence: Evidence) -> list[Answer]:
    """Answer for each curve of two or more points."""
    levels = predicate.levels if isinstance(predicate, Monotonic) else predicate.descending
    answers = []
    for points, sentence in _curves(pool, predicate.over, levels):
        if isinstance(predicate, Monotonic):
            answers.append(_monotonic(predicate, points, sentence))
        else:
            steps = [_holds(order(amount(a), amount(b)), ">") for a, b in pairwise(points)]
            answers.append(answer(joint(steps), sentence, *points))
    return answers or [_too_few(predicate.metric, predicate.over, levels, pool, evidence)]


def _monotonic(predicate: Monotonic, points: Sequence[Observation], sentence: str) -> Answer:
    """Test that no step goes the wrong way beyond noise, and that the last point is beyond the first."""
    forward, back = ("above", "below") if predicate.direction == "increasing" else ("below", "above")
    steps = [(a, b, order(amount(b), amount(a))) for a, b in pairwise(points)]
    wrong = [
        f"from {condition(a, predicate.over)} to {condition(b, predicate.over)}" for a, b, step in steps if step == back
    ]
    shown = sum(step == forward for *_, step in steps)
    noted = ""
    if wrong:
        noted = f", wrong way {' and '.join(wrong)}"
    elif shown < len(steps):
        noted = f", {shown} of {len(steps)} steps beyond noise"
    ends = order(amount(points[-1]), amount(points[0]))
    holds = None if ends == "within noise" and not wrong else not wrong and ends == forward
    return answer(holds, f"{sentence}{noted}", *points)


def _curves(
    pool: Sequence[Observation], axis: Axis, levels: Sequence[Level]
) -> Iterator[tuple[Sequence[Observation], str]]:
    """Yield curves of two or more points, in the order of their levels, with a sentence about each: `gpus 1, 2: 468, 894 images/s`."""
    every = curves(pool, axis)
    ranks = {level: float(place) for place, level in enumerate(levels) if isinstance(level, str)}

    def rank(one: Observation) -> tuple[float, str]:
        level = condition(one, axis)
        if isinstance(level, (int, float)):
            return float(level), ""
        return (ranks[level], "") if level in ranks else (0.0, str(level))

    for curve in every:
        own = sorted((one for one in curve if not levels or condition(one, axis) in levels), key=rank)
        if len(own) > 1:
            label = distinction([one[0] for one in every], curve[0], but=varying_with({axis}))
            unit = own[0].unit
            values = ", ".join(figure_text(one).removesuffix(unit).rstrip() for one in own)
            places = ", ".join(str(condition(one, axis)) for one in own)
            some = f" ({len(own)} of {len(levels)} levels)" if len(own) < len(levels) else ""
            listed = f"{axis} {places}: {values}{'' if unit == 'x' else ' ' + unit}{some}"
            yield own, f"{label}: {listed}" if label else listed


def _too_few(
    metric: str, axis: Axis, levels: Sequence[Level], pool: Sequence[Observation], evidence: Evidence
) -> Answer:
    absent = evidence.absent_gpus([str(level) for level in levels]) if axis == "gpu" else ()
    if absent:
        return Answer(None, f"no {' and no '.join(absent)} here, but {evidence.device_name}")
    if not pool:
        return Answer(None, evidence.why_absent(metric, Selector()))
    have = sorted({str(level) for one in pool if (level := condition(one, axis)) is not None})
    of_which = f"of {', '.join(map(str, levels))}" if len(levels) > 1 else f"values of {metric_text(axis)}"
    what = f"{metric_text(metric)} is needed at 2 or more {of_which}"
    return Answer(None, f"{what}, and was measured at {', '.join(have) or 'none'}")


def _no_difference(predicate: NoDifference, pool: Sequence[Observation], evidence: Evidence) -> list[Answer]:
    """Answer for each name that the metric has values for (calls, kernels), or once."""
    axes, levels, varying = predicate.over, predicate.levels, varying_with(predicate.over)
    by_name: dict[str | None, dict[tuple[object, ...], dict[str, list[Observation]]]] = defaultdict(dict)
    for one in (each for each in pool if selects(predicate.select, each)):
        values = tuple(condition(one, axis) for axis in axes)
        if None in values or (levels and not set(values) <= set(levels)):
            continue
        fixed = tuple(condition(one, name) for name in CONDITIONS if name not in varying)
        block = by_name[one.name].setdefault(fixed, {})
        block.setdefault(" ".join(map(str, values)), []).append(one)
    answers = []
    for name, own in by_name.items():
        blocks = [block for block in own.values() if len(block) > 1]
        if not blocks:
            continue
        found = contrast([{level: list(map(amount, group)) for level, group in block.items()} for block in blocks])
        used = [one for block in blocks for group in block.values() for one in group]
        distinct = list(dict.fromkeys(level for block in blocks for level in block))
        listed = " and ".join(distinct) if len(distinct) <= _MOST_LISTED else f"{len(distinct)} of {' and '.join(axes)}"
        why = f"{name + ': ' if name else ''}{listed} are {found.spread:.0%} apart ({found.how})"
        not_shown = predicate.differs and not found.differs and found.spread > NEGLIGIBLE
        holds = None if found.differs is None or not_shown else found.differs is predicate.differs
        answers.append(answer(holds, why, *used))
    return answers or [_too_few(predicate.metric, axes[0], levels, pool, evidence)]


def _bound(predicate: Bound, pool: Sequence[Observation], evidence: Evidence) -> list[Answer]:
    """Test bounds: `<` and `>` beyond noise, `<=` and `>=` unless beyond noise on the wrong side; `in` is between both, ends included."""
    own = [one for one in pool if selects(predicate.select, one) and one.method != BY_DEFINITION]
    answers = []
    for one in own:
        figure = in_unit(one, predicate.unit)
        label = distinction(own, one)
        why = f"{label + ': ' if label else ''}{amount_text(figure, predicate.unit)}"
        holds: bool | None
        if isinstance(predicate.value, tuple):
            low, high = (float(end) for end in predicate.value)
            holds = low <= figure.value <= high
        else:
            ordered = order(figure, Amount(float(predicate.value), exact=True))
            holds = predicate.op != "in" and _holds(ordered, predicate.op)
        answers.append(answer(holds, why, one))
    return answers or [Answer(None, evidence.why_absent(predicate.metric, predicate.select))]


def _named(predicate: Named, pool: Sequence[Observation]) -> list[Answer]:
    """Test whether each name is contained in the name of a value: of the `largest` of each run, or of any."""
    groups: dict[object, list[Observation]] = {}
    for one in sorted(pool, key=lambda one: -one.value):
        groups.setdefault((one.where, one.case) if predicate.largest else None, []).append(one)
    firsts = [group[0] for group in groups.values()]
    answers = []
    for group in groups.values():
        kept = group[: predicate.largest]
        found = [[one for one in kept if one.name and name in one.name] for name in predicate.names]
        label = distinction(firsts, group[0], but={"name"}) if len(firsts) > 1 else ""
        shown = [one for own in found for one in own] if all(found) and not predicate.largest else kept
        listed = ", ".join(f"{one.name} {figure_text(one)}" for one in shown[:_MOST_LISTED])
        answers.append(answer(all(found), f"{label + ': ' if label else ''}{listed}", *shown))
    return answers


def _steady(predicate: Steady, evidence: Evidence) -> list[Answer]:
    """Test that the later half of the windows is within 5 % of the earlier, after warm-up windows are left out (`metrics.steadiness`).

    With `after_iterations`, all windows after these are kept; if `window` is given too, the mean of so many iterations after them must be within
    5 % of that of all, which is not testable unless windows end where these iterations begin and end.
    """
    answers = []
    for selector in expand(predicate.for_all):
        found: dict[tuple[object, ...], list[Observation]] = {}
        for one in evidence.over_time(predicate.metric, selector):
            found.setdefault((one.where, one.case), []).append(one)
        firsts = [curve[0] for curve in found.values()]
        answers += [_steady_curve(predicate, curve, distinction(firsts, curve[0])) for curve in found.values()]
    return answers or [Answer(None, evidence.why_absent(f"{predicate.metric} over time", predicate.for_all))]


def _steady_curve(predicate: Steady, curve: Sequence[Observation], label: str) -> Answer:
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
        state = steadiness(windows, most_left_out=1.0)  # no source says how long its `after a while` is
        drift, holds = state.drift, state.steady
    why = f"{prefix}later half {drift:+.1%} off the earlier over {len(kept)} windows"
    if predicate.window and holds:
        first = [one for one in kept if (one.iterations or 0) <= after + predicate.window]
        if len(first) * length != predicate.window:
            which = f"the {predicate.window} iterations after {after}"
            return Answer(None, f"{why}, but windows of {length} iterations do not separate {which}")
        share = float(seconds[: len(first)].mean() / seconds.mean() - 1)
        holds = abs(share) <= STEADY_TOLERANCE
        why += f"; the first {predicate.window} iterations {share:+.1%} off all"
    return answer(holds, why, *kept)
