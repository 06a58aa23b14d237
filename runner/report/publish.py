"""Writes and prints what a matrix came to: the table, where the records are, and the scaling curve.

A matrix over several transports has a curve of each, and the comparison of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from runner.report import figures, transports
from runner.report.export import markdown, to_csv
from runner.report.plot import scaling_png
from runner.report.power_plot import power_png
from runner.report.summary import Summary
from runner.report.table import print_report
from runner.report.transports_plot import transports_png
from runner.results import RunRecord, read_table, write_report
from runner.summarize import summarize
from runner.transports import compare, curves


def publish(runs: Sequence[tuple[Path, RunRecord]], *, out: Path, name: str, console: Console) -> None:
    """Report the runs of one matrix.

    Args:
        runs: run directories and their records; passes under a profiler among them are named, and in no table.
        out: where the reports go, beside the run directories.
        name: name of the matrix, which the reports carry.
        console: where the table is printed.
    """
    _publish_measured([run for run in runs if not run[1].profiled], out=out, name=name, console=console)
    for path, record in runs:
        if record.profile:
            console.print(f"profile: dlscale profile {path}", style="dim", markup=False)


def _publish_measured(runs: Sequence[tuple[Path, RunRecord]], *, out: Path, name: str, console: Console) -> None:
    """Report measured runs; Ctrl-C or a baseline on file can leave none of them."""
    if not runs:
        return
    found = curves(runs)
    contents: dict[str, str | bytes | None] = {}
    for curve in found:
        stem = f"{name}-{curve.slug}" if len(found) > 1 else name
        summary = summarize(curve.runs)
        print_report(console, summary)
        contents |= {
            f"{stem}.md": markdown(summary),
            f"{stem}.csv": to_csv(summary),
            f"{stem}.png": scaling_png(summary),
            f"{stem}-power.png": _power(curve.runs, summary),
        }
    if len(found) > 1:
        comparison = compare(found)
        console.print(transports.transports_table(comparison))
        contents |= {
            f"{name}-transports.md": transports.markdown(comparison),
            f"{name}-transports.csv": transports.to_csv(comparison),
            f"{name}-transports.png": transports_png(comparison),
        }
    for file, content in contents.items():
        if content is not None:
            console.print(f"report: {write_report(out, file, content)}", style="dim", markup=False)


def _power(runs: Sequence[tuple[Path, RunRecord]], summary: Summary) -> bytes | None:
    """What the devices did over time in the first usable run of the largest scale; None where nobody looked on."""
    watched = [(path, record, record.telemetry) for path, record in runs if record.telemetry]
    usable = [one for one in watched if one[1].validity.status != "invalid"]
    if not usable:
        return None
    path, record, telemetry = max(usable, key=lambda one: one[1].trial.world_size)
    frame = read_table(path, "telemetry")
    if frame is None:
        return None
    ground = f"{record.run_id} · {figures.ground(summary)}"
    return power_png(frame, telemetry, title=summary.title, ground=ground)
