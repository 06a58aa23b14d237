"""Cells with their runs → the `Reproduction`: what was observed, each figure beside its own, and the verdict on each finding.

`judge` is pure; `judge_again` reads the records of a reproduction on file and judges them again, as `dlscale regrade` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from runner.analysis.summarize import machine as machine_of
from runner.core.errors import RequestError, one_line
from runner.core.frozen import load_fields, misfit
from runner.experiments.studies import tables
from runner.experiments.studies.differences import as_ran, counted, software
from runner.experiments.studies.evidence import Evidence
from runner.experiments.studies.model import Cell, CellOutcome, CellRun, Machine, Observation, Reproduction, Scale
from runner.experiments.studies.observe import observed
from runner.experiments.studies.predicates import judged
from runner.experiments.studies.study import Study, load_study
from runner.experiments.studies.verdicts import compared
from runner.results.published.findings import Steady
from runner.results.published.load import load_all
from runner.results.published.model import Published
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
    """Judge what was published by what every cell of a study shows; `git` is the suite's commit."""
    runs = [as_ran(run, study=study, published=published) for run in runs]
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
    cell, told = run.cell, counted(run)
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
        software=tuple(dict.fromkeys(map(software, told))),
        images=tuple(dict.fromkeys(record.image.reference for record in told)),
        devices=tuple(dict.fromkeys(map(machine_of, told))),
    )


def _is_kept(one: Observation, published: Published) -> bool:
    """Windows one by one are kept only for quantities that a finding follows over time."""
    parts = (part for finding in published.findings for part in finding.parts)
    return one.iterations is None or one.metric in {part.metric for part in parts if isinstance(part, Steady)}


SUFFIX: Final = ".reproduction.json"
"""What the files of reproductions end with, beside the directories of their runs."""


def write(path: Path, reproduction: Reproduction) -> Path:
    """Write a reproduction and, beside it, its tables as Markdown; returns where these are."""
    write_report(path.parent, path.name, reproduction.model_dump_json(indent=1) + "\n")
    return write_report(path.parent, path.name.removesuffix(SUFFIX) + ".md", tables.markdown(reproduction))


def reproductions(directory: Path) -> Iterator[Reproduction]:
    """Every readable reproduction in the folders of runs at or below a directory."""
    for path in (path for folder in folders_under(directory) for path in sorted(folder.glob(f"*{SUFFIX}"))):
        try:
            yield read_reproduction(path)
        except RequestError:
            continue


def read_reproduction(path: Path) -> Reproduction:
    """A reproduction on file; a RequestError where it can't be read, or another version of the suite wrote it."""
    try:
        fields = load_fields(path.read_text(encoding="utf-8"))
        try:
            return Reproduction.model_validate(fields)
        except ValidationError:  # an earlier version of the suite had other kinds of predicates
            return Reproduction.model_validate(_with_present_findings(fields))
    except ValidationError as error:
        raise RequestError(f"{path}: is no reproduction of a study, {misfit(error)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"{path}: is no reproduction of a study ({one_line(error)})") from error


def _with_present_findings(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a reproduction with each finding as its source's file has it now."""
    try:
        source = next(one for one in load_all() if one.id == fields["source"])
        present = {finding.id: finding.model_dump() for finding in source.findings}
        found = [{**one, "finding": present[one["finding"]["id"]]} for one in fields["judgements"]]
    except (StopIteration, LookupError, TypeError):
        return fields
    return {**fields, "judgements": found}


def judge_again(path: Path) -> tuple[Reproduction, Reproduction]:
    """(reproduction on file, the same as its runs' records and its study give it now).

    A RequestError: it can't be read, or its study, a block of that or a run of it is gone.
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
    """A cell by its records; only its file knows whether one without any was to run, and why it did not."""
    if was.runs and now.measured + now.passes:
        return now if was.status == "ran" else now.model_copy(update={"why": None})
    return now.model_copy(update={"status": "failed" if was.runs else was.status, "why": now.why or was.why})
