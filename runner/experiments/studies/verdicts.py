"""Each published figure beside what was measured in its place. Pure.

`reproduced` and `differs` are said where nothing differs: hardware, software, network, data and settings are the source's. Else absolute
figures are `not comparable`, and only shapes (speedup, efficiency, ratios and shares) are judged. Verdicts on degraded or on too few runs
become `indicated` or `not indicated`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from statistics import median_low
from typing import Final

from runner.experiments.studies.differences import hardware
from runner.experiments.studies.evidence import (
    BY_DEFINITION,
    Evidence,
    agreement,
    amount,
    doubts,
    in_unit,
    made_of,
    not_run,
    partners,
    term,
)
from runner.experiments.studies.model import INDICATED, Comparison, FigureVerdict, Observation
from runner.experiments.studies.noise import Amount, ratio
from runner.experiments.studies.observe import is_measured, observation_of
from runner.experiments.studies.predicates import pairs_of
from runner.experiments.studies.study import NOT_STATED, Study
from runner.results.published.derive import Scaled, scaled
from runner.results.published.findings import RATE, Selector
from runner.results.published.model import Conditions, Figure

SHAPES: Final = frozenset(
    {"speedup", "scaling_efficiency", "throughput_ratio", "time_ratio", "throughput_gain"}
    | {"nccl_broadcast_time_share", "winograd_time_share", "maxpoolbackward_time_share", "compute_time_share"}
    | {"memory_api_time_shares", "cudaLaunchKernel_api_time_share"}
)
"""Quantities that can be compared between devices: shares and multiples of another quantity of the same device."""

_OF_RATIOS: Final = {"speed_ratio": "throughput", "throughput_ratio": "throughput", "time_ratio": "total_time"}

_ELSEWHERE: Final = frozenset(
    {"gpu", "version", "container", "system", "dataset", "data", "note", "strategy", "submitter"}
)
"""What may differ between a figure and the measured one; each difference is named."""


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
    shared = {name: getattr(figure, name) for name in ("metric", "unit", "where", "conditions", "bound", "approx")}
    printed = figure.value if isinstance(figure.value, Decimal) else None
    base = {"figure": figure.id, "published": printed, **shared}
    if not measured:
        return Comparison(**base, verdict="not measured", why=_why_not(figure, evidence))
    one = max(measured, key=lambda each: term(each, "batch") or 0)
    unclear = dict(_unclear(figure, measured))
    fields = (*(field for field in _differing(figure, one, evidence) if field not in unclear), *unclear.values())
    if one.unit != figure.unit and {one.unit, figure.unit} & set(RATE):  # which count different things
        return Comparison(**base, measured=one, verdict="not comparable", fields=(*fields, "unit"))
    if printed is None:
        return Comparison(**base, measured=one, verdict="not comparable", fields=(*fields, "several values there"))
    own = in_unit(one, figure.unit)
    made = ratio(own, Amount(float(printed), exact=True))
    stated = study.tolerance(figure.metric)
    tolerance = stated.share if stated else None
    if tolerance is None and figure.bound is None:
        fields = (*fields, "tolerance (the study states none)")
    verdict = _verdict(figure, own, made, fields=fields, tolerance=tolerance)
    if unclear:
        verdict = "not comparable"
    doubted = doubts(one) if verdict in INDICATED else ()
    return Comparison(
        **base,
        measured=one,
        ratio=made.value if made else None,
        ratio_ci95=made.ci95 if made else None,
        tolerance=tolerance,
        verdict=INDICATED[verdict] if doubted else verdict,
        fields=fields,
        doubts=doubted,
        why=one.method,
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


def _differing(figure: Figure, one: Observation, evidence: Evidence) -> Iterator[str]:
    """Fields in which the two runs differ; the device in words: `gpu (Tesla P100 there, Tesla V100 here)`."""
    devices = hardware(
        evidence.published, figure.conditions, gpu=one.where.gpu, device=one.device, name=one.device_name
    )
    named = {each.field: f"{each.field} ({each.published} there, {each.here} here)" for each in devices}
    yield from named.values()
    yield from (field for field in one.altered if field not in named)


def _unclear(figure: Figure, equally: Sequence[Observation]) -> Iterator[tuple[str, str]]:
    """What the source leaves out, so that nobody can tell which of several runs a figure is of: the field, and the same in words."""
    for name in ("batch", "model", "gpus"):
        values = {value for each in equally if (value := term(each, name)) is not None}
        here = sorted(values, key=lambda value: (float(value), "") if isinstance(value, int) else (0.0, str(value)))
        if len(here) > 1 and term(observation_of(figure), name) is None:
            yield name, f"{name} ({NOT_STATED} there, {', '.join(map(str, here))} here)"


def _why_not(figure: Figure, evidence: Evidence) -> str:
    if figure.metric in _OF_RATIOS and figure.conditions.versus is None:
        return "the source does not say in figures what it is against; a finding may"
    versus = figure.conditions.versus
    if figure.metric in _OF_RATIOS and versus and versus.device and evidence.device == "cpu":
        return f"a GPU is to be held against a CPU, and here is only {evidence.device_name}"
    printed = observation_of(figure)
    own = [run for run in evidence.cells if agreement(printed, run.cell, free=_ELSEWHERE) is not None]
    ids = {run.cell.id for run in own}
    reasons = (
        *(one.why for one in evidence.missing if one.cell in ids and one.metric == figure.metric),
        *(not_run(run) for run in own if not run.runs),
        "no cell that was run gives it" if own else "no cell of this study gives it",
    )
    return next(filter(None, reasons))
