"""Writes and prints what a matrix came to: the table, where the records are, and the scaling curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from runner.report.export import markdown, to_csv
from runner.report.plot import scaling_png
from runner.report.table import print_report
from runner.results import RunRecord, write_report
from runner.summarize import summarize


def publish(runs: Sequence[tuple[Path, RunRecord]], *, out: Path, name: str, console: Console) -> None:
    """Report the runs of one matrix.

    Args:
        runs: run directories and their records, at least one.
        out: where the reports go, beside the run directories.
        name: name of the matrix, which the reports carry.
        console: where the table is printed.
    """
    summary = summarize(runs)
    print_report(console, summary)
    written = [write_report(out, f"{name}.md", markdown(summary)), write_report(out, f"{name}.csv", to_csv(summary))]
    curve = scaling_png(summary)
    if curve is not None:
        written.append(write_report(out, f"{name}.png", curve))
    for path in written:
        console.print(f"report: {path}", style="dim", markup=False)
