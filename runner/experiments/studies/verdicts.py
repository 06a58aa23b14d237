"""Each published figure beside what was measured in its place. Pure.

`reproduced` and `differs` are said where nothing differs: hardware, software, network, data and settings are the source's. Elsewhere
absolute figures are `not comparable`, with the fields that differ and the ratio all the same; of shapes (speedup, efficiency, ratios and
shares), which are free of the speed of a device, it is said whether they agree. Each becomes `indicated` or `not indicated` where the
measured figure rests on degraded runs, or on too few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from statistics import median_low
from typing import Final

from runner.experiments.studies.differences import hardware
from runner.experiments.studies.evidence import BY_DEFINITION, Evidence, amount, doubts, in_unit, made_of, not_run
from runner.experiments.studies.matching import Value, agreement, partners, term
from runner.experiments.studies.model import INDICATED, Comparison, FigureVerdict, Observation
from runner.experiments.studies.noise import Amount, ratio
from runner.experiments.studies.observe import is_measured, observation_of
from runner.experiments.studies.predicates import pairs_of
from runner.experiments.studies.study import NOT_STATED, Study
from runner.results.published.derive import Scaled, scaled
from runner.results.published.findings import Selector
from runner.results.published.model import Conditions, Figure
from runner.results.published.units import RATE

SHAPES: Final = frozenset(
    {"speedup", "scaling_efficiency", "throughput_ratio", "time_ratio", "throughput_gain"}
    | {"nccl_broadcast_time_share", "winograd_time_share", "maxpoolbackward_time_share", "compute_time_share"}
    | {"memory_api_time_shares", "cudaLaunchKernel_api_time_share"}
)
"""Quantities that can be compared between devices: each is a part, or a multiple, of another of the same device."""

_OF_RATIOS: Final = {"speed_ratio": "throughput", "throughput_ratio": "throughput", "time_ratio": "total_time"}

_ELSEWHERE: Final = frozenset(
    {"gpu", "version", "container", "system", "dataset", "data", "note", "strategy", "submitter"}
)
"""What may differ between a figure and what stands in its place; each difference is named."""


def compared(evidence: Evidence, study: Study) -> tuple[Comparison, ...]:
    """Every measured figure of the source, in the order of its file, each followed by the speedup that follows from it."""
    curves = {one.figure.id: one for one in scaled(evidence.published)}
    found: list[Comparison] = []
    for figure in evidence.published.figures:
        if is_measured(figure) and figure.metric != "samples_per_run":  # which its settings make
            found.append(_figure(figure, evidence, study))
            if figure.id in curves and curves[figure.id].baseline is not figure:
                found.append(_figure(_speedup(curves[figure.id]), evidence, study))
    return tuple(found)


def _figure(figure: Figure, evidence: Evidence, study: Study) -> Comparison:
    if figure.metric in _OF_RATIOS:
        return _held(figure, _ratios(figure, evidence), evidence, study)
    stand_in = observation_of(figure)
    own = [one for one in evidence.of(figure.metric) if not one.extra and one.method != BY_DEFINITION]
    return _held(figure, list(partners(stand_in, own, free=_ELSEWHERE)), evidence, study)


def _speedup(curve: Scaled) -> Figure:
    """Absolute figures of other hardware say nothing; their curve does."""
    value = Decimal(f"{curve.speedup:.4g}")
    return curve.figure.model_copy(update={"metric": "speedup", "unit": "x", "kind": "derived", "value": value})


def _ratios(figure: Figure, evidence: Evidence) -> list[Observation]:
    """What is measured in place of a ratio: the middle one of all pairs of cells that it may be of."""
    conditions = figure.conditions
    if conditions.versus is None:
        return []
    names = [name for name in Selector.model_fields if name in Conditions.model_fields and name not in {"gpu", "data"}]
    above = Selector.model_validate({name: value for name in names if (value := getattr(conditions, name)) is not None})
    below = above.model_copy(update=conditions.versus.stated)
    pool = [one for one in evidence.of(_OF_RATIOS[figure.metric]) if not one.extra]
    pairs = {
        made.value: (one, other, made)
        for one, other in pairs_of(above, below, pool)
        if (made := ratio(amount(one), amount(other)))
    }
    if not pairs:
        return []
    one, other, made = pairs[median_low(pairs)]
    method = f"middle one of {len(pairs)} pairs" if len(pairs) > 1 else None
    return [made_of(one, other, metric=figure.metric, unit="x", figure=made, method=method)]


def _held(figure: Figure, measured: Sequence[Observation], evidence: Evidence, study: Study) -> Comparison:
    """A figure against the observations that are equally near to it."""
    printed = figure.value if isinstance(figure.value, Decimal) else None
    comparison = Comparison(
        figure=figure.id,
        metric=figure.metric,
        unit=figure.unit,
        where=figure.where,
        conditions=figure.conditions,
        published=printed,
        bound=figure.bound,
        approx=figure.approx,
        verdict="not measured",
    )
    if not measured:
        return comparison.model_copy(update={"why": _why_not(figure, evidence)})
    one = max(measured, key=lambda each: term(each, "batch") or 0)
    unclear = {field.partition(" ")[0]: field for field in _unclear(figure, measured)}
    fields = (*(field for field in _differing(figure, one, evidence) if field not in unclear), *unclear.values())
    own = _own_unit(one, figure)
    if printed is None or own is None:
        fields = (*fields, "unit" if own is None else "several values there")
        return comparison.model_copy(update={"measured": one, "verdict": "not comparable", "fields": fields})
    made = ratio(own, Amount(float(printed), exact=True))
    tolerance = study.tolerance(figure.metric)
    if tolerance is None and figure.bound is None:
        fields = (*fields, "tolerance (the study states none)")
    verdict = _verdict(figure, own, made, fields=fields, tolerance=tolerance.share if tolerance else None)
    if unclear:
        verdict = "not comparable"
    doubted = doubts(one) if verdict in INDICATED else ()
    return comparison.model_copy(
        update={
            "measured": one,
            "ratio": made.value if made else None,
            "ratio_ci95": made.ci95 if made else None,
            "tolerance": tolerance.share if tolerance else None,
            "verdict": INDICATED[verdict] if doubted else verdict,
            "fields": fields,
            "doubts": doubted,
            "why": one.method,
        }
    )


def _verdict(
    figure: Figure, own: Amount, made: Amount | None, *, fields: Sequence[str], tolerance: float | None
) -> FigureVerdict:
    if figure.bound is not None:
        value = float(figure.value) if isinstance(figure.value, Decimal) else 0.0
        near = own.value > value if figure.bound == ">" else own.value < value
    elif tolerance is None or made is None:
        return "not comparable"
    else:
        near = abs(made.value - 1) <= tolerance
    if not fields:
        return "reproduced" if near else "differs"
    if figure.metric in SHAPES:
        return "shape agrees" if near else "shape differs"
    return "not comparable"


def _own_unit(one: Observation, figure: Figure) -> Amount | None:
    """The measured figure in the unit of the printed one; None where both count different things."""
    if one.unit != figure.unit and {one.unit, figure.unit} & set(RATE):
        return None
    return in_unit(one, figure.unit)


def _differing(figure: Figure, one: Observation, evidence: Evidence) -> Iterator[str]:
    """Everything in which the two runs differ: the device in words, `gpu (Tesla P100 there, Tesla V100 here)`, of the rest its name."""
    devices = hardware(
        evidence.published, figure.conditions, gpu=one.where.gpu, device=one.device, name=one.device_name
    )
    named = {each.field: f"{each.field} ({each.published} there, {each.here} here)" for each in devices}
    yield from named.values()
    yield from (field for field in one.altered if field not in named)


def _unclear(figure: Figure, equally: Sequence[Observation]) -> Iterator[str]:
    """What the source leaves out, so that nobody can tell which of several runs a figure is of."""
    for name in ("batch", "model", "gpus"):
        here = sorted({value for each in equally if (value := term(each, name)) is not None}, key=_sorted)
        if len(here) > 1 and term(observation_of(figure), name) is None:
            yield f"{name} ({NOT_STATED} there, {', '.join(map(str, here))} here)"


def _sorted(value: Value) -> tuple[float, str]:
    """Numbers by size, then names."""
    return (float(value), "") if isinstance(value, int) else (0.0, str(value))


def _why_not(figure: Figure, evidence: Evidence) -> str:
    """Why nothing stands in the place of a figure."""
    if figure.metric in _OF_RATIOS and figure.conditions.versus is None:
        return "the source does not say in figures what it is against; a finding may"
    versus = figure.conditions.versus
    if figure.metric in _OF_RATIOS and versus and versus.device and evidence.device == "cpu":
        return f"a GPU is to be held against a CPU, and here is only {evidence.device_name}"
    stand_in = observation_of(figure)
    own = [
        run
        for run in evidence.cells
        if agreement(stand_in, stand_in.model_copy(update={"where": run.cell.where}), free=_ELSEWHERE) is not None
    ]
    ids = {run.cell.id for run in own}
    for reason in (
        *(one.why for one in evidence.missing if one.cell in ids and one.metric == figure.metric),
        *(not_run(run) for run in own if not run.runs),
    ):
        if reason:
            return reason
    return "no cell that was run gives it" if own else "no cell of this study gives it"
