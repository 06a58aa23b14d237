"""`dlscale regrade`: computes the derived parts of records again, from the raw files and the facts of the run alone, and judges studies again."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel
from rich.console import Console

from runner.errors import RequestError
from runner.foreign import grade as foreign
from runner.grading.grade import Graded, grade, scaling
from runner.machine.provenance import SUITE_ROOT
from runner.results import (
    RECORD,
    RunRecord,
    folders_under,
    read_events,
    read_plan,
    read_record,
    read_table,
    run_directories,
    write_record,
)
from runner.studies.again import SUFFIX, judge_again, write_again
from runner.trial import ForeignTrial
from runner.workload import load_workloads


def regrade(directory: Path) -> tuple[RunRecord, RunRecord]:
    """Grade one run directory again: (record on file, record as its raw files give it now).

    Raises:
        RequestError: no readable record or raw file is there, or its workload is unknown.
    """
    record = read_record(directory)
    graded = _grade(directory, record)
    baseline_id = record.scaling.baseline_run_id
    baseline = read_record(directory.parent / baseline_id) if baseline_id and baseline_id != record.run_id else None
    return record, record.model_copy(
        update={
            "outcome": graded.outcome,
            "measurement": graded.measurement,
            "transport": graded.transport,
            "validity": graded.validity,
            "profile": graded.profile,
            "telemetry": graded.telemetry,
            "scaling": scaling(record.trial, record.run_id, graded, baseline),
        }
    )


def _grade(directory: Path, record: RunRecord) -> Graded:
    """Compute the figures of a run from its raw events, by the rules for its kind of program."""
    events = read_events(directory)
    samples, monitors = read_table(directory, "telemetry"), read_plan(directory).monitors
    trial = record.trial
    if isinstance(trial, ForeignTrial):
        return foreign.grade(trial=trial, outcome=record.outcome, events=events, samples=samples, monitors=monitors)
    workload = next((w for w in load_workloads(SUITE_ROOT) if w.name == trial.workload), None)
    if workload is None:
        raise RequestError(f"{directory}: trains workload {trial.workload!r}, which this checkout does not have")
    return grade(
        trial=trial,
        outcome=record.outcome,
        events=events,
        samples=samples,
        monitors=monitors,
        provenance=record.provenance,
        workload=workload,
        kernels=read_table(directory, "kernels") if trial.profile else None,
    )


def regrade_all(directory: Path) -> int:
    """Regrade a run directory, or all at any depth of a directory with the studies made of them; write what differs and say so. Returns the exit code.

    Raises:
        RequestError: nothing to regrade there.
    """
    console = Console(highlight=False, soft_wrap=True)
    if (directory / RECORD).is_file():
        _regrade_run(directory, console=console)
        return 0
    folders = folders_under(directory)
    if not folders:
        raise RequestError(
            f"{directory} holds no {RECORD} and no run directory that does; name one, for example results/MACHINE"
        )
    for folder in folders:
        for run in run_directories(folder):
            _regrade_run(run, console=console)
        _regrade_studies(folder, console=console)
    return 0


def _regrade_run(run: Path, *, console: Console) -> None:
    old, new = regrade(run)
    changed = _changed(old, new)
    if changed:
        write_record(run, new)
    _say(console, run, changed, source="the raw files")


def _regrade_studies(folder: Path, *, console: Console) -> None:
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        before, after = judge_again(path)
        changed = _changed(before, after)
        if changed:
            write_again(path, after)
        _say(console, path, changed, source="the records")


def _changed(old: BaseModel, new: BaseModel) -> list[str]:
    return [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]


def _say(console: Console, path: Path, changed: list[str], *, source: str) -> None:
    said = f"written again, {', '.join(changed)} differed from {source}" if changed else "same"
    console.print(f"{path}: {said}", markup=False)
