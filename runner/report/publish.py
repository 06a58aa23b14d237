"""Prints and writes the results of a matrix: tables, paths of the records, the scaling curve, power over time, and passes under a profiler.

A matrix over several transports has one curve per transport, and their comparison.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from runner.analysis.comparisons.settings import CaseFigures, case_figures
from runner.analysis.comparisons.transports import Comparison, Curve, compare, curves
from runner.analysis.summarize import Summary, summarize
from runner.core import units
from runner.core.console import in_user_terms, no_console
from runner.core.record import RunRecord
from runner.core.trial import title
from runner.report import collectives, modes, picture, profile, transports
from runner.report.comparisons import Report, Reports, concurrent
from runner.report.matrix import markdown, to_csv
from runner.report.page import figures as drawn
from runner.report.page.figures import Watched, over_time, watched
from runner.report.terminal import print_short, print_whole
from runner.results.store import write_report

Run = tuple[Path, RunRecord]
PICTURE_POINTS: Final = 1500  # points of a curve over time: more than a picture has pixels


@dataclass(frozen=True)
class Measured:
    """The measured runs of a matrix: each curve with its figures, and their comparison if there are several.

    `cases` holds the figures of concurrent trainings, with the summary of the first of their runs; None if there are none.
    """

    curves: tuple[tuple[Curve, Summary], ...]
    comparison: Comparison | None
    cases: tuple[Summary, tuple[CaseFigures, ...]] | None

    @classmethod
    def of(cls, runs: Sequence[Run], *, of_one_matrix: bool = True) -> Measured:
        """Group the runs of one or several matrices, dropping passes under a profiler; may be empty after Ctrl-C, or if only a baseline is on file."""
        measured = [run for run in runs if not run[1].profiled and not run[1].concurrent]
        found = curves(measured, of_one_matrix=of_one_matrix) if measured else ()
        return cls(
            curves=tuple((curve, summarize(curve.runs)) for curve in found),
            comparison=compare(found) if len(found) > 1 else None,
            cases=(summarize([run for run in runs if run[1].concurrent][:1]), cases)
            if (cases := case_figures(runs))
            else None,
        )


def publish(runs: Sequence[Run], *, out: Path, name: str, console: Console, verbose: bool = False) -> None:
    """Write the reports of one matrix to `out` under its name; print the result, the path of the reports, and the next command.

    Passes under a profiler are in no table of figures. `verbose` prints all tables and the path of each record and report; otherwise the
    output fits one screen.
    """
    measured = Measured.of(runs)
    for _, summary in measured.curves:
        if verbose:
            print_whole(console, summary)
        elif not measured.comparison:
            print_short(console, summary)
    if measured.comparison:
        console.print(transports.transports_table(measured.comparison))
    if measured.cases:
        console.print(concurrent(*measured.cases, name=name).terminal())
    seen = telemetry_by_curve(measured, console=console)
    write(measured, runs, seen=seen, out=out, name=name, console=console if verbose else no_console())
    passes = [path for path, record in runs if record.profile]
    lines = [*(f"profile: dlscale profile {path}" for path in passes), f"results: {_relative(out / name)}*"]
    if not passes:
        place = shlex.quote(str(_relative(out)))
        command = f"make report DIR={place}" if "MAKELEVEL" in os.environ else f"dlscale report {place}"
        more = "" if verbose else f", or this bench again with {in_user_terms('--verbose')}"
        lines.append(f"next: {command}{more}")
    # Do not wrap these lines on a narrow terminal: paths and commands are copied from them.
    console.print("\n".join(lines), style="dim", markup=False, highlight=False, soft_wrap=True)


def _relative(path: Path) -> Path:
    """The path relative to the working directory, if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def telemetry_by_curve(measured: Measured, *, console: Console) -> dict[str, Watched]:
    """Telemetry samples by the label of their curve; curves without samples are left out."""
    found = {curve.label: watched(curve.runs, console=console) for curve, _ in measured.curves}
    return {label: seen for label, seen in found.items() if seen}


def write(
    measured: Measured,
    runs: Sequence[Run],
    *,
    seen: Mapping[str, Watched],
    out: Path,
    name: str,
    console: Console,
    pictures: bool = True,
) -> None:
    """Write the reports of a matrix, with or without pictures, and print their paths."""
    found: Reports = {}
    for curve, summary in measured.curves:
        stem = f"{name}-{curve.slug}" if measured.comparison else name
        found |= {
            f"{stem}.md": markdown(summary),
            f"{stem}.csv": to_csv(summary),
            f"{stem}-epochs.csv": modes.epochs_csv(summary),
            f"{stem}-generation.csv": modes.generation_csv(summary),
            f"{stem}-collectives.csv": collectives.to_csv((curve.label, row) for row in summary.rows),
        }
        if pictures:
            found[f"{stem}.png"] = scaling_png(summary)
            if curve.label in seen:
                found[f"{stem}-power.png"] = power_png(seen[curve.label], title=summary.title, ran_on=summary.ran_on)
    if measured.cases:
        found |= concurrent(*measured.cases, name=name).files()
    if measured.comparison:
        found |= transports.report(measured.comparison, name=f"{name}-transports").files(pictures=pictures)
    save(found, out=out, console=console)
    for report in filter(None, map(profiled, runs)):
        save(report.files(pictures=pictures), out=out, console=console)


def save(reports: Mapping[str, str | bytes | None], *, out: Path, console: Console) -> None:
    """Write reports by file name, and print a line for each; None means that there is nothing to write."""
    for file, content in reports.items():
        if content is not None:
            console.print(f"report: {write_report(out, file, content)}", style="dim", markup=False)


def profiled(run: Run) -> Report | None:
    """The report of a pass under a profiler, named after its run; None for a measured run or an invalid pass."""
    _, record = run
    if record.profile is None or record.validity.status == "invalid":
        return None
    summary, what = summarize([run]), title(record.trial)
    first, *more = profile.summary(record.profile)
    ran_on, missing = (summary.setting, summary.ran_on), profile.unavailable(record.profile)
    degraded = record.validity.status == "degraded"
    shares = partial(drawn.time_shares, record.profile)
    picture_of_shares = partial(
        picture.png, *shares(name="shares", title=summary.title), lead=(first,), lines=(*more, *missing, *ran_on)
    )
    return Report(
        chapter="passes",
        name=record.run_id,
        title=what,
        lead=first,
        lines=(*ran_on, first, *more),
        tables=profile.sections(record.profile),
        many=True,
        notes=(*profile.reservations(record), *profile.sampled_counters(record), *missing),
        figures=shares(name=f"{record.run_id}-shares", title=what, run=record.run_id, degraded=degraded),
        pictures={record.run_id: picture_of_shares},
        runs=(record.run_id,),
    )


def scaling_png(summary: Summary) -> bytes | None:
    """Throughput against the ideal line, and efficiency below it; None if fewer than two scales have a throughput."""
    counts = sorted({row.repeats for row in summary.rows if row.usable}) or [0]
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    return picture.png(
        *drawn.scaling_panels(summary),
        title=summary.title,
        lead=(summary.setting, *([summary.wires] if summary.wires else [])),
        lines=(summary.ran_on, f"{fewest}{units.counted(counts[-1])} of each scale"),
    )


def power_png(seen: Watched, *, title: str, ran_on: str) -> bytes | None:
    """Power and utilisation of the devices over the time of a run, as far as known; None if neither is."""
    return picture.png(
        *over_time(seen, name="power", title=title, points=PICTURE_POINTS),
        title=title,
        lead=("what the devices did over time; the measured windows are shaded",),
        lines=(ran_on,),
    )
