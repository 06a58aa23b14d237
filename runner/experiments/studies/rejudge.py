"""A reproduction on file, judged again from the records of its runs: what `dlscale regrade` does with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import ValidationError

from runner.core.errors import RequestError, one_line
from runner.core.frozen import load_fields, misfit
from runner.experiments.studies import load, show
from runner.experiments.studies.model import Cell, CellOutcome, CellRun, Reproduction, Run, is_baseline
from runner.experiments.studies.reproduction import judge
from runner.results.find import records_under
from runner.results.store import read_record, write_report

SUFFIX: Final = ".reproduction.json"
"""What the files of reproductions end with, beside the directories of their runs."""


def read_reproduction(path: Path) -> Reproduction:
    """A reproduction on file.

    Raises:
        RequestError: it can't be read, or another version of the suite wrote it.
    """
    try:
        return Reproduction.model_validate(load_fields(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise RequestError(f"{path}: is no reproduction of a study, {misfit(error)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"{path}: is no reproduction of a study ({one_line(error)})") from error


def judge_again(path: Path) -> tuple[Reproduction, Reproduction]:
    """(reproduction on file, the same as its runs' records and its study give it now).

    Raises:
        RequestError: it can't be read, or its study, a block of that or a run of it is gone.
    """
    old = read_reproduction(path)
    study, published = load.load(old.study)
    baselines = tuple(
        Run(directory=directory.name, record=record)
        for directory, record in records_under(path.parent)
        if is_baseline(record.trial)
    )
    new = judge(
        study,
        published=published,
        runs=[_cell_run(cell, path.parent, baselines) for cell in old.cells],
        machine=old.machine,
        scale=old.scale,
        made_at=old.made_at,
        git=old.git,
    )
    cells = tuple(_outcome(was, now) for was, now in zip(old.cells, new.cells, strict=True))
    return old, new.model_copy(update={"cells": cells})


def _outcome(was: CellOutcome, now: CellOutcome) -> CellOutcome:
    """A cell by its records; whether one without any was to run, and why it did not, is known to the machine that it was for."""
    if was.runs and now.measured + now.passes:
        return now if was.status == "ran" else now.model_copy(update={"why": None})
    return now.model_copy(update={"status": "failed" if was.runs else was.status, "why": now.why or was.why})


def write_again(path: Path, reproduction: Reproduction) -> None:
    """Write a reproduction and its tables in place of those on file."""
    write_report(path.parent, path.name, reproduction.model_dump_json(indent=1) + "\n")
    write_report(path.parent, path.name.removesuffix(SUFFIX) + ".md", show.markdown(reproduction))


def _cell_run(outcome: CellOutcome, folder: Path, baselines: tuple[Run, ...]) -> CellRun:
    runs = tuple(Run(directory=name, record=read_record(folder / name)) for name in outcome.runs)
    keys = {run.record.trial.key for run in runs}
    cell = Cell(
        id=outcome.id,
        block=outcome.block,
        where=outcome.where,
        case=outcome.case,
        why=outcome.why,
        altered=outcome.altered,
        extra=outcome.extra,
    )
    own = tuple(run for run in baselines if run.record.trial.key in keys)
    return CellRun(cell=cell, runs=runs, baseline=own, why=outcome.why)
