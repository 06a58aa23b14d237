"""A source's findings against observations: each predicate `holds`, `does not hold` or is `not testable here`. Pure.

What rests on degraded runs, on fewer than three runs of a cell, or on a figure without an interval is at most `indicated`, or `not indicated`.

A finding is tested once for each combination of the values that its `for_all` lists; one case that fails is enough to fail it, and cases
without figures are said. Where it names no mode it speaks of training, if there are such figures, and where it
names no network of the fastest one.

What a source says of all GPUs that it tried, is said of GPUs, and tested on the one that is here; what it says of some of them, of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from runner.experiments.studies.evidence import Answer, Scene, in_doubt, together
from runner.experiments.studies.matching import described, expand, mode, term
from runner.experiments.studies.model import INDICATED, FindingVerdict, Judgement, Observation
from runner.experiments.studies.predicates import names, pairs, series, single
from runner.results.published.findings import (
    All,
    Approximately,
    Bound,
    Compare,
    Differs,
    Ends,
    Extreme,
    Finding,
    Flags,
    Hump,
    Monotonic,
    NoDifference,
    Order,
    Predicate,
    Product,
    Quotient,
    Ratio,
    RunsKernel,
    Steady,
    Top,
)
from runner.results.published.selector import Selector

_VERDICTS: Final[dict[bool | None, FindingVerdict]] = {True: "holds", False: "does not hold", None: "not testable here"}

_Metric = (
    Monotonic | Compare | Ratio | Bound | Approximately | Order | Ends | Extreme | NoDifference | Differs | Hump | Top
)


def judged(finding: Finding, scene: Scene) -> Judgement:
    """What becomes of a finding."""
    answer = answered(finding.predicate, scene)
    verdict = _VERDICTS[answer.holds]
    return Judgement(
        finding=finding,
        verdict=INDICATED.get(verdict, verdict) if answer.doubts else verdict,
        why=answer.why,
        runs=answer.runs,
        doubts=answer.doubts if verdict in INDICATED else (),
    )


def answered(predicate: Predicate, scene: Scene) -> Answer:
    """What observations say to a predicate."""
    if isinstance(predicate, All):
        return _all([answered(part, scene) for part in predicate.of])
    if isinstance(predicate, Flags):
        return _all(names.flags(predicate, scene))
    if isinstance(predicate, RunsKernel):
        return names.runs_kernel(predicate, scene)
    if isinstance(predicate, Steady | Product | Quotient):
        return together(_whole(predicate, scene))
    return _of_metric(predicate, scene)


def _whole(predicate: Steady | Product | Quotient, scene: Scene) -> list[Answer]:
    """Those that pick their figures themselves."""
    if isinstance(predicate, Steady):
        return single.steady(predicate, scene)
    if isinstance(predicate, Product):
        return single.constant_product(predicate, scene)
    return single.quotient(predicate, scene)


def _of_metric(predicate: _Metric, scene: Scene) -> Answer:
    for_all, on = _claimed(predicate.for_all, scene)
    answer = together([one for case in expand(for_all) for one in _case(predicate, case, scene, of=for_all)])
    return replace(answer, why=f"{answer.why} ({on})") if on and answer.holds is not None else answer


def _all(parts: Sequence[Answer]) -> Answer:
    """A conjunction: told only if all of it is, or if one part fails."""
    failed = [part for part in parts if part.holds is False]
    untold = [part for part in parts if part.holds is None]
    decided = failed or untold or list(parts)
    why = "; ".join(dict.fromkeys(part.why for part in (decided if failed else parts)))
    runs = tuple(dict.fromkeys(run for part in parts for run in part.runs))
    holds = None if untold and not failed else not failed
    return Answer(holds=holds, why=why, runs=runs, doubts=in_doubt(decided))


def _case(predicate: _Metric, case: Selector, scene: Scene, *, of: Selector) -> list[Answer]:
    """One combination of what `for_all` allows; its name goes before its answers where there are several."""
    many = {name for name, values in of.stated.items() if len(values) > 1}
    label = described(Selector.model_validate({name: values for name, values in case.stated.items() if name in many}))
    label = label.replace(",", "")  # a comma stands between cases
    pool = scene.of(predicate.metric, case.model_copy(update={"state": None}))
    if isinstance(predicate, Compare | Ratio):  # whose sides name the state that they mean
        pool += scene.of(predicate.metric, case.model_copy(update={"state": "idle"}))
    if not pool:
        return [Answer(None, scene.nothing(predicate.metric, case, case=many), case=label)]
    pool = _over_the_fastest(predicate, pool, scene)
    own = replace(scene, cells=[run for run in scene.cells if scene.means(case, run)])
    answers: list[Answer] = []
    for some in _by_mode(predicate, pool):
        answers = _asked(predicate, some, own)
        if any(one.holds is not None for one in answers):
            break
    return [replace(one, case=label) for one in answers]


def _over_the_fastest(predicate: _Metric, pool: tuple[Observation, ...], scene: Scene) -> tuple[Observation, ...]:
    """Where a predicate names no network, runs on several nodes over the fastest that was measured, and those on one node."""
    if any(selector.network for selector in _selectors(predicate)):
        return pool
    speeds = {wire.id: wire.gbit_s or 0.0 for wire in scene.published.hardware.wires}
    between = {one.where.network for one in pool if one.where.network and (one.where.nodes or 1) > 1}
    fastest = max(between, key=lambda name: speeds.get(name, 0.0), default=None)
    return tuple(one for one in pool if (one.where.nodes or 1) == 1 or one.where.network in {None, fastest})


def _selectors(predicate: _Metric) -> list[Selector]:
    return [value for name in type(predicate).model_fields if isinstance(value := getattr(predicate, name), Selector)]


def _by_mode(predicate: _Metric, pool: tuple[Observation, ...]) -> list[tuple[Observation, ...]]:
    """The figures to try one after the other: of training, then of inference; all at once where the predicate names the mode."""
    axes = getattr(predicate, "over", ())
    if any(selector.mode for selector in _selectors(predicate)) or "mode" in (
        (axes,) if isinstance(axes, str) else axes
    ):
        return [_in_modes(predicate, pool)]
    training = tuple(one for one in pool if term(one, "mode") in {None, "training"})
    rest = tuple(one for one in pool if one not in training)
    return [some for some in (training, rest) if some]


def _in_modes(predicate: _Metric, pool: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Where modes are levels of an axis, those that are none of them left out."""
    levels = getattr(predicate, "levels", ())
    if not isinstance(predicate, NoDifference) or not levels:
        return pool
    wanted = {mode(str(level)) for level in levels}
    return tuple(one for one in pool if term(one, "mode") in wanted)


def _asked(predicate: _Metric, pool: tuple[Observation, ...], scene: Scene) -> list[Answer]:
    """Ask by the predicate's kind."""
    for kind, ask in _BY_KIND:
        if isinstance(predicate, kind):
            return ask(predicate, pool, scene)
    raise AssertionError(predicate.type)


_BY_KIND: Final[tuple[tuple[type, Callable[..., list[Answer]]], ...]] = (
    (Monotonic, series.monotonic),
    (Compare, pairs.compare),
    (Ratio, pairs.ratio_is),
    (Bound, single.bound),
    (Approximately, single.approximately),
    (Order, series.ordered),
    (Ends, series.ends),
    (Extreme, series.extreme),
    (NoDifference, series.no_difference),
    (Differs, series.differs),
    (Hump, series.hump),
    (Top, names.top),
)


def _claimed(for_all: Selector, scene: Scene) -> tuple[Selector, str | None]:
    """What a finding is tested for here, and where that is, if it is not one of the source's GPUs.

    Its GPUs are let go if they are all of those in some block of the source's runs, and none of them is here.
    """
    if not for_all.gpu or len(scene.gpus_not_here(for_all.gpu)) < len(for_all.gpu):
        return for_all, None
    blocks = [
        runs
        for runs in scene.published.runs
        if runs.gpu and (not for_all.model or set(for_all.model) & set(runs.models))
    ]
    if not any(set(runs.gpu) <= set(for_all.gpu) for runs in blocks):
        return for_all, None
    return for_all.model_copy(
        update={"gpu": None}
    ), f"on {scene.device_name} in place of {' and '.join(scene.gpus_not_here(for_all.gpu))}"
