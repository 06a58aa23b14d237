"""`dlscale profile`: prints what a pass under a profiler found, from its record."""

from __future__ import annotations

import sys
from pathlib import Path

from runner.core.console import complain, open_console
from runner.core.errors import RequestError
from runner.core.record import RunRecord
from runner.results.find import read_runs
from runner.results.store import RECORD, folders_under, read_record, run_directories


def show_profile(directory: Path, *, as_json: bool) -> None:
    """Print the tables of a pass, or its `profile` as JSON. RequestError: no pass is there, or its profiler never began."""
    path, record = find_pass(directory)
    if record.profile is None:
        reasons = "; ".join(record.validity.reasons) or "no rank said so"
        raise RequestError(f"{path}: its profiler never began ({reasons}); its logs are in {path / 'logs'}")
    if as_json:
        sys.stdout.write(record.profile.model_dump_json(indent=1) + "\n")
        return
    # Not before it is known that there is something to show.
    from runner.core.trial import title
    from runner.report.profile import profile_report, reservations, sampled

    console = open_console()
    console.print(title(record.trial), style="bold", soft_wrap=True)
    console.print(f"{record.validity.status}, record: {path}", style="dim", soft_wrap=True)
    for reason in reservations(record):
        console.print(reason, style="yellow", soft_wrap=True)
    console.print(profile_report(record.profile))
    for text in sampled(record):
        console.print(text, soft_wrap=True)


def find_pass(directory: Path) -> tuple[Path, RunRecord]:
    """The pass of a run directory, or the newest one at or below a directory. RequestError: there is none; the sentence says how to make one."""
    if (directory / RECORD).is_file():
        record = read_record(directory)
        if not record.profiled:
            raise RequestError(
                f"{directory}: is a measured run, which no profiler disturbed; name a pass under one, or make it with PROFILE=kernels"
            )
        return directory, record
    every = read_runs(run for folder in folders_under(directory) for run in run_directories(folder))
    complain(every.passed_over)
    found = [(path, record) for path, record in every.runs if record.profiled]
    if not found:
        raise RequestError(f"{directory}: holds no pass under a profiler; name one, or make it with PROFILE=kernels")
    return max(found, key=lambda pair: pair[1].provenance.recorded_at)
