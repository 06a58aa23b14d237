"""`dlscale report`: draws records that are on file, each matrix as `bench` drew it, each pass under a profiler, and sweeps over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from runner.errors import RequestError
from runner.report import sweep
from runner.report.publish import redraw, save
from runner.results import RECORD, RunRecord, check_writable, read_record, records_under
from runner.sweeps import sweeps

Run = tuple[Path, RunRecord]


def report(directory: Path, *, out: Path | None) -> None:
    """Write the reports of a run, or of all runs in a directory, and print where each is.

    Args:
        directory: a run directory, whose reports carry the run's own name; or a directory of them, whose reports carry the matrix's.
        out: where the reports go; None for beside the run directories.

    Raises:
        RequestError: no record is there, or `out` takes no file.
        RunFailedError: a report could not be written.
    """
    console = Console(highlight=False, soft_wrap=True)
    if (directory / RECORD).is_file():
        run = (directory, read_record(directory))
        # Under a name of its own: a matrix's reports are of all its runs.
        named = {run[1].run_id: [run]}
        beside = directory.parent
    else:
        named = matrices(list(records_under(directory)))
        beside = directory
    if not named:
        raise RequestError(
            f"{directory}: holds no run record that can be read; name a run directory, or one of several, for example results/MACHINE"
        )
    out = out or beside
    check_writable(out)
    for name, runs in named.items():
        redraw([*_baselines(runs), *runs], out=out, name=name, console=console)
    for found in sweeps([run for runs in named.values() for run in runs]):
        save(sweep.reports(found), out=out, console=console)


def matrices(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each matrix by its name, in the order in which they ran: the first transport is what the others are held against."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run[1].provenance.recorded_at):
        found.setdefault(run[1].matrix_id, []).append(run)
    return found


def _baselines(runs: Sequence[Run]) -> list[Run]:
    """One-device runs of earlier matrices that speedups of these are against; one that is gone leaves its speedups out."""
    known = {record.run_id for _, record in runs}
    found: dict[str, Run] = {}
    for path, record in runs:
        name = record.scaling.baseline_run_id
        if name and name not in known and name not in found:
            try:
                found[name] = (path.parent / name, read_record(path.parent / name))
            except RequestError:
                continue
    return list(found.values())
