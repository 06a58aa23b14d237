"""Cells with their runs → the `Reproduction`: all observations, each figure with its measured counterpart, and the verdict on each finding.

`judge` is pure; `rejudge` reads the records of a reproduction on file and judges them again, as `dlscale regrade` does.

A figure is `reproduced` or `differs` only if everything is the source's: hardware, software, network, data and settings. Otherwise absolute
figures are `not comparable`, and only shapes (speedup, efficiency, ratios and shares) are judged. Verdicts on degraded runs, or on too few,
become `indicated` or `not indicated`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from statistics import median_low
from typing import Any, Final

from pydantic import ValidationError

from runner.analysis.summarize import machine as machine_of
from runner.core.errors import RequestError, one_line
from runner.core.frozen import first_error, load_fields
from runner.core.measurement import Interval
from runner.experiments.studies import tables
from runner.experiments.studies.differences import from_records, hardware, software, usable_records
from runner.experiments.studies.evidence import (
    BY_DEFINITION,
    Evidence,
    agreement,
    amount,
    best_matches,
    condition,
    derived_from,
    doubts,
    in_unit,
    why_not_run,
)
from runner.experiments.studies.model import (
    INDICATED,
    Cell,
    CellOutcome,
    CellRun,
    Comparison,
    FigureVerdict,
    Machine,
    Observation,
    Reproduction,
    Scale,
)
from runner.experiments.studies.noise import Amount, ratio
from runner.experiments.studies.observe import is_measured, observation_of, observed
from runner.experiments.studies.predicates import judged, pairs_of
from runner.experiments.studies.study import NOT_STATED, Study, load_study
from runner.results.published.derive import Scaled, scaled
from runner.results.published.findings import RATE, Selector, Steady
from runner.results.published.load import load_all
from runner.results.published.model import Conditions, Figure, Published
from runner.results.store import folders_under, read_record, write_report


def judge(
    study: Study,
    *,
    published: Published,
    runs: Sequence[CellRun],
    machine: Machine,
    scale: Scale,
    made_at: datetime,
    git: str | None = None,
) -> Reproduction:
    """Judge the source by what every cell of a study shows; `git` is the suite's commit."""
    runs = [from_records(run, study=study, published=published) for run in runs]
    observations, missing = observed(runs, published=published, machine=machine)
    evidence = Evidence(
        published=published,
        observations=observations,
        missing=missing,
        cells=runs,
        device=machine.device,
        device_name=machine.device_name,
    )
    notes = (
        f"CPU workers of {machine.device_name} stand for the source's GPUs: curves and ratios can be compared, figures of a device can't",
    )
    return Reproduction(
        study=study.id,
        source=published.id,
        title=study.title,
        scale=scale,
        machine=machine,
        made_at=made_at,
        git=git,
        cells=tuple(_outcome(run) for run in runs),
        observations=tuple(one for one in observations if _is_kept(one, published)),
        missing=missing,
        comparisons=compared(evidence, study),
        judgements=tuple(judged(finding, evidence) for finding in published.findings),
        notes=study.notes if machine.device == "gpu" else (*study.notes, *notes),
    )


def _outcome(run: CellRun) -> CellOutcome:
    cell, records = run.cell, usable_records(run)
    usable = [record for record in run.runs if record.validity.status != "invalid"]
    reasons = [reason for record in run.runs for reason in record.validity.reasons]
    failed = run.runs or run.why
    return CellOutcome(
        id=cell.id,
        block=cell.block,
        where=cell.where,
        case=cell.case,
        status="ran" if usable else "skipped" if cell.request is None else "failed" if failed else "open",
        why=run.why or cell.why or (None if usable else next(iter(reasons), None)),
        altered=cell.altered,
        extra=cell.extra,
        runs=tuple(record.run_id for record in run.runs),
        measured=sum(not record.profiled for record in usable),
        passes=sum(record.profiled for record in usable),
        degraded=sum(record.validity.status == "degraded" for record in usable),
        doubts=tuple(dict.fromkeys(reason for record in usable for reason in record.validity.reasons)),
        software=tuple(dict.fromkeys(map(software, records))),
        images=tuple(dict.fromkeys(record.image.reference for record in records)),
        devices=tuple(dict.fromkeys(map(machine_of, records))),
    )


def _is_kept(one: Observation, published: Published) -> bool:
    """Whether to keep an observation: single windows only of quantities that a finding follows over time."""
    parts = (part for finding in published.findings for part in finding.parts)
    return one.iterations is None or one.metric in {part.metric for part in parts if isinstance(part, Steady)}


SHAPES: Final = frozenset(
    {"speedup", "scaling_efficiency", "throughput_ratio", "time_ratio", "throughput_gain"}
    | {"nccl_broadcast_time_share", "winograd_time_share", "maxpoolbackward_time_share", "compute_time_share"}
    | {"memory_api_time_shares", "cudaLaunchKernel_api_time_share", "cudaEventDestroy_api_time_share"}
)
"""Quantities that are comparable across devices: shares and multiples of another quantity of the same device."""

_RATIO_OF: Final = {"speed_ratio": "throughput", "throughput_ratio": "throughput", "time_ratio": "total_time"}

_LENGTHS: Final = frozenset({"training_time", "total_time"})
"""Times of a whole run, which say nothing next to that of a run of other length."""

_MAY_DIFFER: Final = frozenset(
    {"gpu", "version", "container", "system", "dataset", "data", "note", "strategy", "submitter"}
)
"""Conditions in which a figure and its measured counterpart may differ; each difference is named."""


def compared(evidence: Evidence, study: Study) -> tuple[Comparison, ...]:
    """Compare every measured figure of the source, in the order of its file, each followed by the speedup derived from it."""
    curves = {one.figure.id: one for one in scaled(evidence.published)}
    found: list[Comparison] = []
    for figure in evidence.published.figures:
        if is_measured(figure) and figure.metric != "samples_per_run":  # derived from its settings
            found.append(_figure(figure, evidence, study))
            if figure.id in curves and curves[figure.id].baseline is not figure:
                found.append(_figure(_speedup(curves[figure.id]), evidence, study))
    return tuple(found)


def _figure(figure: Figure, evidence: Evidence, study: Study) -> Comparison:
    if figure.metric in _RATIO_OF:
        return _comparison(figure, _ratios(figure, evidence), evidence, study)
    stand_in = observation_of(figure)
    own = [one for one in evidence.of(figure.metric) if not one.extra and one.method != BY_DEFINITION]
    return _comparison(figure, list(best_matches(stand_in, own, may_differ=_MAY_DIFFER)), evidence, study)


def _speedup(curve: Scaled) -> Figure:
    """Derive a speedup from a figure: absolute values do not carry over to other hardware, their curve does."""
    value = Decimal(f"{curve.speedup:.4g}")
    return curve.figure.model_copy(update={"metric": "speedup", "unit": "x", "kind": "derived", "value": value})


def _ratios(figure: Figure, evidence: Evidence) -> list[Observation]:
    conditions = figure.conditions
    if conditions.versus is None:
        return []
    names = [name for name in Selector.model_fields if name in Conditions.model_fields and name not in {"gpu", "data"}]
    above = Selector.model_validate({name: value for name in names if (value := getattr(conditions, name)) is not None})
    below = above.model_copy(update=conditions.versus.stated)
    pool = [one for one in evidence.of(_RATIO_OF[figure.metric]) if not one.extra]
    pairs = {
        made.value: (one, other, made)
        for one, other in pairs_of(above, below, pool)
        if (made := ratio(amount(one), amount(other)))
    }
    if not pairs:
        return []
    one, other, made = pairs[median_low(pairs)]
    method = f"middle one of {len(pairs)} pairs" if len(pairs) > 1 else None
    return [derived_from(one, other, metric=figure.metric, unit="x", figure=made, method=method)]


def _comparison(figure: Figure, measured: Sequence[Observation], evidence: Evidence, study: Study) -> Comparison:
    """Compare a figure with the observations that match it equally well."""
    shared = {name: getattr(figure, name) for name in ("metric", "unit", "where", "conditions", "bound", "approx")}
    printed = figure.value if isinstance(figure.value, Decimal) else None
    base = {"figure": figure.id, "published": printed, **shared}
    if not measured:
        return Comparison(**base, verdict="not measured", why=_why_not_measured(figure, evidence))
    one = max(measured, key=lambda each: condition(each, "batch") or 0)
    ambiguous = dict(_ambiguous(figure, measured))
    fields = (*(field for field in _differing(figure, one, evidence) if field not in ambiguous), *ambiguous.values())
    if one.unit != figure.unit and {one.unit, figure.unit} & set(RATE):  # rates that count different things
        return Comparison(**base, measured=one, verdict="not comparable", fields=(*fields, "unit"))
    if printed is None:
        return Comparison(**base, measured=one, verdict="not comparable", fields=(*fields, "several values there"))
    own = in_unit(one, figure.unit)
    quotient = ratio(own, Amount(float(printed), exact=True))
    stated = study.tolerance(figure.metric)
    tolerance = stated.share if stated else None
    if tolerance is None and figure.bound is None:
        fields = (*fields, "tolerance (the study states none)")
    verdict = _verdict(figure, own, quotient, fields=fields, tolerance=tolerance)
    among = None
    if ambiguous:
        verdict = "not comparable"
        values = [in_unit(each, one.unit).value for each in measured]
        among = Interval(low=min(values), high=max(values))
    if ambiguous or (figure.metric in _LENGTHS and "iterations" in one.altered):
        quotient = None
    doubted = doubts(one) if verdict in INDICATED else ()
    return Comparison(
        **base,
        measured=one,
        among=among,
        ratio=quotient.value if quotient else None,
        ratio_ci95=quotient.ci95 if quotient else None,
        tolerance=tolerance,
        verdict=INDICATED[verdict] if doubted else verdict,
        fields=fields,
        doubts=doubted,
        why=one.method,
    )


def _verdict(
    figure: Figure, own: Amount, quotient: Amount | None, *, fields: Sequence[str], tolerance: float | None
) -> FigureVerdict:
    if figure.bound is not None:
        value = float(figure.value) if isinstance(figure.value, Decimal) else 0.0
        near = own.value > value if figure.bound == ">" else own.value < value
    elif tolerance is None or quotient is None:
        return "not comparable"
    else:
        near = abs(quotient.value - 1) <= tolerance
    if not fields:
        return "reproduced" if near else "differs"
    if figure.metric in SHAPES:
        return "shape agrees" if near else "shape differs"
    return "not comparable"


def _differing(figure: Figure, one: Observation, evidence: Evidence) -> Iterator[str]:
    """Yield the fields in which the two runs differ; the device in words: `gpu (Tesla P100 there, Tesla V100 here)`."""
    devices = hardware(
        evidence.published, figure.conditions, gpu=one.where.gpu, device=one.device, name=one.device_name
    )
    named = {each.field: f"{each.field} ({each.published} there, {each.here} here)" for each in devices}
    yield from named.values()
    yield from (field for field in one.altered if field not in named)


def _ambiguous(figure: Figure, matches: Sequence[Observation]) -> Iterator[tuple[str, str]]:
    """Yield settings that the source leaves out, so that several runs match the figure: the field, and a phrase with the values here."""
    for name in ("batch", "model", "gpus"):
        values = {value for each in matches if (value := condition(each, name)) is not None}
        here = sorted(values, key=lambda value: (float(value), "") if isinstance(value, int) else (0.0, str(value)))
        if len(here) > 1 and condition(observation_of(figure), name) is None:
            yield name, f"{name} ({NOT_STATED} there, {', '.join(map(str, here))} here)"


def _why_not_measured(figure: Figure, evidence: Evidence) -> str:
    if figure.metric in _RATIO_OF and figure.conditions.versus is None:
        return "the source does not say in figures what it is against; a finding may"
    versus = figure.conditions.versus
    if figure.metric in _RATIO_OF and versus and versus.device and evidence.device == "cpu":
        return f"a GPU is to be held against a CPU, and here is only {evidence.device_name}"
    printed = observation_of(figure)
    own = [run for run in evidence.cells if agreement(printed, run.cell, may_differ=_MAY_DIFFER) is not None]
    ids = {run.cell.id for run in own}
    reasons = (
        *(one.why for one in evidence.missing if one.cell in ids and one.metric == figure.metric),
        *(why_not_run(run) for run in own if not run.runs),
        "no cell that was run gives it" if own else "no cell of this study gives it",
    )
    return next(filter(None, reasons))


SUFFIX: Final = ".reproduction.json"
"""The ending of reproduction files, which are next to the directories of their runs."""


def write(path: Path, reproduction: Reproduction) -> Path:
    """Write a reproduction and its tables as Markdown next to it; return the path of the tables."""
    write_report(path.parent, path.name, reproduction.model_dump_json(indent=1) + "\n")
    return write_report(path.parent, path.name.removesuffix(SUFFIX) + ".md", tables.markdown(reproduction))


def reproductions(directory: Path) -> Iterator[Reproduction]:
    """Yield every readable reproduction in the run folders at or below a directory."""
    for path in (path for folder in folders_under(directory) for path in sorted(folder.glob(f"*{SUFFIX}"))):
        try:
            yield read_reproduction(path)
        except RequestError:
            continue


def read_reproduction(path: Path) -> Reproduction:
    """Read a reproduction. Raises RequestError if it can't be read, or was written by an incompatible version of the suite."""
    try:
        fields = load_fields(path.read_text(encoding="utf-8"))
        try:
            return Reproduction.model_validate(fields)
        except ValidationError:  # predicates of an earlier version of the suite
            return Reproduction.model_validate(_with_current_findings(fields))
    except ValidationError as error:
        raise RequestError(f"{path}: is no reproduction of a study, {first_error(error)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"{path}: is no reproduction of a study ({one_line(error)})") from error


def _with_current_findings(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace each finding in a reproduction's fields by the present one of the source's file."""
    try:
        source = next(one for one in load_all() if one.id == fields["source"])
        present = {finding.id: finding.model_dump() for finding in source.findings}
        found = [{**one, "finding": present[one["finding"]["id"]]} for one in fields["judgements"]]
    except (StopIteration, LookupError, TypeError):
        return fields
    return {**fields, "judgements": found}


def rejudge(path: Path) -> tuple[Reproduction, Reproduction]:
    """Return (the reproduction on file, its new judgement by the records of its runs and the present study).

    Raises RequestError if it can't be read, or if its study, a block of it or one of the runs no longer exists.
    """
    old = read_reproduction(path)
    study, published = load_study(old.study)
    shared = ("id", "block", "where", "case", "why", "altered", "extra")
    runs = [
        CellRun(
            cell=Cell(**{name: getattr(cell, name) for name in shared}),
            runs=tuple(read_record(path.parent / name) for name in cell.runs),
            why=cell.why,
        )
        for cell in old.cells
    ]
    new = judge(
        study,
        published=published,
        runs=runs,
        machine=old.machine,
        scale=old.scale,
        made_at=old.made_at,
        git=old.git,
    )
    cells = tuple(_kept_status(was, now) for was, now in zip(old.cells, new.cells, strict=True))
    return old, new.model_copy(update={"cells": cells})


def _kept_status(was: CellOutcome, now: CellOutcome) -> CellOutcome:
    """Restore the status that records can't tell: whether a cell without any was to run, and why it did not."""
    if was.runs and now.measured + now.passes:
        return now if was.status == "ran" else now.model_copy(update={"why": None})
    return now.model_copy(update={"status": "failed" if was.runs else was.status, "why": now.why or was.why})
