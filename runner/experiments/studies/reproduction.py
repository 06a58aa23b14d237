"""Cells with their runs → the `Reproduction`: what was observed, each figure beside its own, and what became of each finding. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from runner.analysis.summarize import machine as machine_of
from runner.experiments.studies.differences import as_ran, counted, software
from runner.experiments.studies.evidence import Scene
from runner.experiments.studies.model import CellOutcome, CellRun, Machine, Observation, Reproduction
from runner.experiments.studies.observe import observed
from runner.experiments.studies.predicates import judged
from runner.experiments.studies.request import Scale
from runner.experiments.studies.study import Study
from runner.experiments.studies.verdicts import compared
from runner.results.published.findings import All, Predicate, Steady
from runner.results.published.model import Published


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
    """Hold what was run against what was published.

    Args:
        study: the matrix with its tolerances.
        published: its source.
        runs: every cell, with the runs that it has.
        machine: what they ran on.
        scale: whether the study was shortened.
        made_at: now.
        git: the suite's commit.

    Raises:
        RequestError: the study has no such block any more.
    """
    runs = [as_ran(run, study=study, published=published) for run in runs]
    observations, missing = observed(runs, published=published, machine=machine)
    scene = Scene(
        published=published,
        observations=observations,
        missing=missing,
        cells=runs,
        device=machine.device,
        device_name=machine.device_name,
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
        comparisons=compared(scene, study),
        judgements=tuple(judged(finding, scene) for finding in published.findings),
        notes=(*study.notes, *_notes(machine)),
    )


def _outcome(run: CellRun) -> CellOutcome:
    cell = run.cell
    usable = [one.record for one in run.runs if one.record.validity.status != "invalid"]
    reasons = [reason for one in run.runs for reason in one.record.validity.reasons]
    told = counted(run)
    return CellOutcome(
        id=cell.id,
        block=cell.block,
        where=cell.where,
        case=cell.case,
        status=(
            "ran" if usable else "skipped" if cell.request is None else "failed" if run.runs or run.why else "open"
        ),
        why=run.why or cell.why or (None if usable else next(iter(reasons), None)),
        altered=cell.altered,
        extra=cell.extra,
        runs=tuple(one.directory for one in run.runs),
        measured=sum(not record.profiled for record in usable),
        passes=sum(record.profiled for record in usable),
        degraded=sum(record.validity.status == "degraded" for record in usable),
        doubts=tuple(dict.fromkeys(reason for record in usable for reason in record.validity.reasons)),
        software=tuple(dict.fromkeys(map(software, told))),
        images=tuple(dict.fromkeys(record.image.reference for record in told)),
        devices=tuple(dict.fromkeys(map(machine_of, told))),
    )


def _is_kept(one: Observation, published: Published) -> bool:
    """Windows one by one are kept only for quantities that a finding follows over time."""
    followed = {
        part.metric for finding in published.findings for part in _parts(finding.predicate) if isinstance(part, Steady)
    }
    return one.iterations is None or one.metric in followed


def _parts(predicate: Predicate) -> tuple[object, ...]:
    return predicate.of if isinstance(predicate, All) else (predicate,)


def _notes(machine: Machine) -> tuple[str, ...]:
    if machine.device == "gpu":
        return ()
    return (
        f"CPU workers of {machine.device_name} stand for the source's GPUs: curves and ratios can be compared, figures of a device can't",
    )
