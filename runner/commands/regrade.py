"""`dlscale regrade`: recompute the derived parts of records from nothing but the raw files and the facts of the run, and judge studies again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from runner.analysis.grading.grade import lost_file, scaling
from runner.core.console import notify, open_console
from runner.core.errors import DlscaleError, RequestError
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunRecord
from runner.core.trial import Trial
from runner.core.workload import load_workloads
from runner.experiments.studies.reproduction import SUFFIX, rejudge, write
from runner.results.store import (
    RECORD,
    folders_under,
    read_events,
    read_plan,
    read_record,
    read_table,
    run_directories,
    write_record,
)
from runner.run.grading import RunFiles, grade_run


def regrade(directory: Path) -> tuple[RunRecord, RunRecord]:
    """Grade one run directory again: (record on file, record as its raw files give it now).

    Raises RequestError if the record or a raw file is missing or unreadable, its workload is unknown, or the record of its baseline is gone.
    """
    record = read_record(directory)
    trial, workload = record.trial, None
    if isinstance(trial, Trial):
        workload = next((w for w in load_workloads(SUITE_ROOT) if w.name == trial.workload), None)
        if workload is None:
            raise RequestError(f"{directory}: trains workload {trial.workload!r}, which this checkout does not have")
    files = RunFiles(
        plan=read_plan(directory).model_copy(update={"trial": trial}),
        outcome=record.outcome,
        events=read_events(directory),
        provenance=record.provenance,
        workload=workload,
        samples=read_table(directory, "telemetry"),
        kernels=read_table(directory, "kernels") if trial.profile else None,
    )
    graded = grade_run(files)
    against = scaling(trial, record.run_id, graded, _baseline(directory, record))
    new = record.model_copy(update={**vars(graded), "scaling": against})
    if missing := lost_file(record, new, files.samples):
        raise RequestError(f"{directory}: {missing}; restore it as the run left it; the record is unchanged")
    return record, new


def _baseline(directory: Path, record: RunRecord) -> RunRecord | None:
    """The record of the run's baseline, next to it; None if the run has none or is its own."""
    name = record.scaling.baseline_run_id
    if not name or name == record.run_id:
        return None
    try:
        return read_record(directory.parent / name)
    except RequestError as error:
        raise RequestError(
            f"{directory}: the baseline of its speedup can't be read ({error}); restore it next to the run; the record is unchanged"
        ) from error


def regrade_all(directory: Path) -> int:
    """Regrade a run directory, or all runs at any depth of a directory and their studies; write what differs and say so.

    A run that can't be regraded is left unchanged, does not stop the others, and makes the exit code 2. Raises RequestError if there is no run.
    """
    found = list(_to_regrade(directory))
    if not found:
        raise RequestError(
            f"{directory} holds no {RECORD} and no run directory that does; name one, for example results/MACHINE"
        )
    console = open_console(soft_wrap=True)
    refused: list[str] = []
    for path in found:
        try:
            changed, source = _regrade_study(path) if path.name.endswith(SUFFIX) else _regrade_run(path)
        except DlscaleError as error:
            refused.append(str(error))
        else:
            outcome = f"written again, {', '.join(changed)} differed from {source}" if changed else "same"
            console.print(f"{path}: {outcome}")
    notify(refused)
    return RequestError.exit_code if refused else 0


def _to_regrade(directory: Path) -> Iterator[Path]:
    """Everything to regrade: run directories and, after those of its folder, each study's file."""
    if (directory / RECORD).is_file():
        yield directory
        return
    for folder in folders_under(directory):
        yield from run_directories(folder)
        yield from sorted(folder.glob(f"*{SUFFIX}"))


def _regrade_run(run: Path) -> tuple[list[str], str]:
    """The parts of a record that were rewritten, and the source that they differed from; `_regrade_study` returns the same of a study."""
    old, new = regrade(run)
    changed = _changed(old, new)
    if changed:
        try:
            write_record(run, new)
        except OSError as error:
            raise RequestError(
                f"{run}: its {RECORD} can't be rewritten ({error.strerror}); free some space or make it writable; it is unchanged"
            ) from error
    return changed, "the raw files"


def _regrade_study(path: Path) -> tuple[list[str], str]:
    before, after = rejudge(path)
    changed = _changed(before, after)
    if changed:
        write(path, after)
    return changed, "the records"


def _changed(old: BaseModel, new: BaseModel) -> list[str]:
    before, after = old.model_dump(), new.model_dump()
    return [name for name in type(old).model_fields if not _equal(before[name], after[name])]


def _equal(one: object, other: object) -> bool:
    """Whether two values are equal; numbers to 12 digits, since another processor adds up in another order."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other
