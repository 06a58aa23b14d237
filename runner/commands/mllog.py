"""`dlscale report --format mllog`: writes the log of every training on file in the field's standard format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.core.console import open_console
from runner.core.errors import RequestError
from runner.core.trial import Trial
from runner.report.mllog import mllog
from runner.results.disk import check_writable
from runner.results.find import Run, runs_at
from runner.results.store import read_events, write_report

SUFFIX = ".mllog.txt"


def write_logs(places: Sequence[Path], *, out: Path | None) -> None:
    """Write a log a run, in `out` or beside the run, and print where each is and of which runs there is none.

    Raises:
        RequestError: no record is there, or `out` takes no file.
        RunFailedError: a log could not be written.
    """
    console = open_console(soft_wrap=True)
    found = runs_at(*map(str, places))
    if out is not None:
        check_writable(out)
    written = 0
    for run in found.runs:
        try:
            text, reason = _log_of(run)
        except RequestError as error:
            console.print(f"no log: {error}", style="yellow")
            continue
        if text is None:
            console.print(f"no log: {run[1].run_id}, {reason}")
            continue
        written += 1
        path = write_report(out or run[0].parent, f"{run[1].run_id}{SUFFIX}", text)
        console.print(f"log: {path}")
    for sentence in found.passed_over:
        console.print(f"no log: {sentence}", style="yellow")
    if not written:
        raise RequestError(
            f"{', '.join(map(str, places))}: holds no training that was measured; name another directory"
        )


def _log_of(run: Run) -> tuple[str | None, str]:
    """The log of a run, or why there is none. RequestError: its events can't be read."""
    directory, record = run
    if record.profiled:
        return None, "a pass under a profiler"
    if isinstance(record.trial, Trial) and record.trial.mode == "infer":
        return None, "inference, and the log is of training"
    return mllog(record, read_events(directory)), "it never began to train"
