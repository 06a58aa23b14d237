"""`dlscale report`: draw records on file: each matrix as `bench` does, comparisons across matrices, and one page of everything; or write MLPerf's log."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final
from urllib.parse import quote

from rich.console import Console

import runner
from runner.analysis.comparisons.devices import devices
from runner.analysis.comparisons.transports import across
from runner.core.console import no_console, notify, open_console
from runner.core.errors import DlscaleError, RequestError
from runner.core.trial import Trial
from runner.experiments.overhead.figures import PREFIX, read_overhead, report_from_file
from runner.experiments.studies import page as study_page
from runner.experiments.studies.reproduction import SUFFIX, read_reproduction
from runner.report import picture, publish, transports
from runner.report.comparisons import Report, compare_matrices
from runner.report.comparisons import devices as device_report
from runner.report.mllog import mllog
from runner.report.page import collect, model, render
from runner.report.page.collect import Collected
from runner.report.page.markdown import markdown
from runner.report.page.model import Page, RunLine
from runner.report.page.runs import line
from runner.report.picture import prune
from runner.report.progress import progress
from runner.report.publish import Measured, profiled, save, telemetry_by_curve
from runner.results.disk import check_writable
from runner.results.find import Run, one_per_run, read_each, read_runs, run_directories_below, runs_at
from runner.results.store import RECORD, read_events, read_record, write_report

PAGE: Final = "report.html"
KEPT_PAGE: Final = "report.md"  # the page without figures, committed with the records
FIGURES_FOLDER: Final = "report-figures"  # folder of the page's figures as PNG and CSV
# Matrices drawn at most. With more on file, the newest are drawn without pictures of single matrices, which take an hour for 20,000.
MOST_MATRICES: Final = 500
FIGURES_PER_LINE: Final = 25  # figures, a few seconds' work, between progress lines


def report(directories: Sequence[Path], *, out: Path | None, beside_runs: bool = True) -> None:
    """Write the reports of one run, or of all runs at or below some directories, plus one page of them all; print each file's path.

    A run directory's reports are named after the run and go next to it; its page goes into it. For directories of runs, reports are named
    after their matrix and go next to the run directories, and the page goes into the directory, or the common parent of several;
    `beside_runs=False` writes the page only. `out` replaces these places and keeps the names of the folders.

    Raises:
        RequestError: there is no record, or `out` is not writable.
        RunFailedError: a report could not be written.
    """
    console = open_console(soft_wrap=True)
    first = directories[0]
    # Check before the page's folder is created, which may be this very directory.
    if missing := next((one for one in directories if not one.is_dir()), None):
        why = "is a file" if missing.exists() else "does not exist"
        raise RequestError(f"{missing} {why}; name a run directory, or a folder of them; `dlscale ls` lists runs")
    if len(directories) == 1 and (first / RECORD).is_file():
        run = (first, read_record(first))
        # Named after the run, because a report named after the matrix covers all its runs.
        check_writable(out or first.parent)
        every = [*_baselines([run]), run]
        measured = Measured.of(every)
        seen = telemetry_by_curve(measured, console=console)
        publish.write(measured, every, seen=seen, out=out or first.parent, name=run[1].run_id, console=console)
        beside_runs = False
    above = first if len(directories) == 1 else Path(os.path.commonpath([one.resolve() for one in directories]))
    place = out or above
    check_writable(place)

    def folder_for(folder: Path) -> Path:
        return out / os.path.relpath(folder.resolve(), above.resolve()) if out else folder

    found = _collect(directories, page=place, folder_for=folder_for, write=beside_runs, pictures=True, console=console)
    _write(found, place, console=console)
    prune()


def check_pages(directories: Sequence[Path]) -> None:
    """Compare the committed Markdown page of each directory with what its records give now. Raises DlscaleError, which names every page that differs."""
    differing = []
    for one in directories:
        found = _collect(
            [one], page=one, folder_for=lambda folder: folder, write=False, pictures=False, console=open_console()
        )
        kept = one / KEPT_PAGE
        if not kept.is_file() or kept.read_text(encoding="utf-8") != markdown(_page(found)):
            differing.append(one)
    if differing:
        again = "; ".join(f"dlscale report {one}" for one in differing)
        pages = ", ".join(str(one / KEPT_PAGE) for one in differing)
        raise DlscaleError(f"out of date: {pages}; run `{again}` and commit the result")


def matrices(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each matrix by its name, in the order in which they ran: the first transport is the reference for the others."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run[1].provenance.recorded_at):
        found.setdefault(run[1].matrix_id, []).append(run)
    return found


@dataclass(frozen=True, kw_only=True)
class _OnFile:
    """Runs on file."""

    folders: Mapping[Path, Sequence[Run]]  # runs to draw, by the folder that holds them
    others: Sequence[tuple[datetime, Path, RunLine]] = ()  # runs not drawn: time, folder, row in the table of all runs
    caveat: str = ""  # the page's note about the runs not drawn


def _on_file(directories: Sequence[Path], *, page: Path) -> _OnFile:
    """The runs at or below some directories, each once; warns about records that are skipped. Raises RequestError if there is no run."""
    every = list(dict.fromkeys(run for directory in directories for run in run_directories_below(directory)))
    if len(every) > MOST_MATRICES:
        on_file, skipped = _newest(every, page=page)
    else:
        found = read_runs(every)
        on_file, skipped = _OnFile(folders=_by_folder(found.runs)), found.skipped
    notify(skipped)
    if not on_file.folders:
        names = ", ".join(str(directory) for directory in directories)
        raise RequestError(
            f"{names}: holds no run record that can be read; name a run directory, or a folder of them, for example results/MACHINE"
        )
    return on_file


def _newest(every: Sequence[Path], *, page: Path) -> tuple[_OnFile, Sequence[str]]:
    """Of more runs than fit in memory: the newest matrices in full, a table row for every other run, and a sentence about each record skipped."""
    skipped: list[str] = []
    listed = [
        (
            directory,
            (directory.parent, record.matrix_id),
            record.provenance.recorded_at,
            line(record, link=_link(directory, page)),
        )
        for directory, record in read_each(every, skipped)
    ]
    kept, copies = one_per_run([(directory, run.run_id) for directory, _, _, run in listed])
    listed = [one for one in listed if one[0] in kept]
    last = {matrix: when for _, matrix, when, _ in sorted(listed, key=lambda one: one[2])}
    newest = frozenset(sorted(last, key=lambda matrix: last[matrix], reverse=True)[:MOST_MATRICES])
    runs = read_runs(directory for directory, matrix, _, _ in listed if matrix in newest).runs
    others = [(when, directory.parent, run) for directory, matrix, when, run in listed if matrix not in newest]
    caveat = f"Drawn from the newest {MOST_MATRICES:,} of {len(last):,} matrices; the table of runs has all, and `dlscale report FOLDER` draws those of one folder."
    return _OnFile(folders=_by_folder(runs), others=others, caveat=caveat if others else ""), (*skipped, *copies)


def _by_folder(runs: Sequence[Run]) -> dict[Path, list[Run]]:
    folders: dict[Path, list[Run]] = {}
    for run in runs:
        folders.setdefault(run[0].parent, []).append(run)
    return folders


def _collect(
    directories: Sequence[Path],
    *,
    page: Path,
    folder_for: Callable[[Path], Path],
    write: bool,
    pictures: bool,
    console: Console,
) -> Collected:
    """Collect everything on file for the page; with `write`, also write the reports of each folder's runs to `folder_for(folder)`.

    Links are relative to `page`; `pictures` adds the curves of telemetry over time. Raises RequestError if there is no run.
    """
    on_file = _on_file(directories, page=page)
    found = Collected(others=[(when, run) for when, _, run in on_file.others], caveat=on_file.caveat)
    partly_drawn = {folder for _, folder, _ in on_file.others}
    # A folder of older runs only may still hold studies and measurements of overhead.
    folders = {**on_file.folders, **{folder: [] for folder in sorted(partly_drawn - on_file.folders.keys())}}
    for folder, runs in folders.items():
        place = folder_for(folder)
        if write:
            check_writable(place)
        own = Collected(records=[(_link(path, page), record) for path, record in runs])
        out = place if write else None
        _draw_matrices(runs, own, out=out, in_full=not on_file.caveat, pictures=pictures, console=console)
        # A comparison of only some of a folder's runs must not overwrite one of all.
        _draw_comparisons(runs, own, out=None if folder in partly_drawn else out, console=console)
        _draw_experiments(folder, own, out=out, console=console)
        found.join(own, files=_files(place, page=page))
    across_folders = Collected()
    every = [run for runs in on_file.folders.values() for run in runs]
    out = page if write and not on_file.caveat else None
    _add(map(device_report, devices(every)), across_folders, out=out, console=console)
    found.join(across_folders, files=_files(page, page=page))
    return found


def _draw_matrices(
    runs: Sequence[Run], found: Collected, *, out: Path | None, in_full: bool, pictures: bool, console: Console
) -> None:
    """Add each matrix and, unless `out` is None, write its reports; `in_full` adds a picture for each matrix and prints a line for each file."""
    shown_on = console if in_full else no_console()
    named = matrices(runs)
    for name, own in named.items():
        every = [*_baselines(own), *own]
        measured = Measured.of(every)
        seen = telemetry_by_curve(measured, console=console) if pictures else {}
        if out:
            publish.write(measured, every, seen=seen, out=out, name=name, console=shown_on, pictures=in_full)
        found.matrix(measured, name=name, watched=seen)
        found.add("passes", *(one.page_block() for one in map(profiled, own) if one))
    if out and not in_full:
        console.print(f"reports: {len(named):,} matrices in {out}", style="dim")


def _draw_experiments(folder: Path, found: Collected, *, out: Path | None, console: Console) -> None:
    """Add the studies and overheads that were run in a folder; write the overheads' reports unless `out` is None.

    A file that can't be read, or whose runs are gone, is skipped with a warning.
    """
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            reproduction = read_reproduction(path)
        except RequestError as error:
            console.print(f"not drawn: {error}", style="yellow")
        else:
            found.add("studies", study_page.block(reproduction, stem=path.name.removesuffix(SUFFIX)))
    for path in sorted(folder.glob(f"{PREFIX}*.json")):
        try:
            overhead = report_from_file(read_overhead(path), folder)
        except DlscaleError as error:
            console.print(f"not drawn: {path.name}: {error}", style="yellow")
        else:
            _add([overhead], found, out=out, console=console)


def _draw_comparisons(runs: Sequence[Run], found: Collected, *, out: Path | None, console: Console) -> None:
    """Add comparisons across matrices, and write their reports unless `out` is None."""
    for name, joined in across(runs).items():
        measured = Measured.of(joined, of_one_matrix=False)
        if measured.comparison and out:
            save(transports.report(measured.comparison, name=name).files(), out=out, console=console)
        found.add("comparisons", *collect.compared_block(measured, name=name))
    _add(compare_matrices(runs), found, out=out, console=console)


def _add(reports: Iterable[Report], found: Collected, *, out: Path | None, console: Console) -> None:
    for one in reports:
        if out:
            save(one.files(), out=out, console=console)
        found.add(one.chapter, one.page_block())


def _link(path: Path, page: Path) -> str:
    """The path of a run directory or report, relative to the page; each folder is resolved once for all its contents."""
    if path.is_symlink():
        return quote(_relative_path(page, path))
    return quote(f"{_relative_path(page, path.parent)}/{path.name}".removeprefix("./"))


@functools.cache
def _relative_path(page: Path, path: Path) -> str:
    return Path(os.path.relpath(path.resolve(), page.resolve())).as_posix()


def _files(folder: Path, *, page: Path) -> dict[str, str]:
    """Links from the page to the reports in a folder, by file name."""
    found = sorted(path for kind in ("png", "md", "csv") for path in folder.glob(f"*.{kind}"))
    return {path.name: _link(path, page) for path in found}


def _page(found: Collected) -> Page:
    count = len(found.records) + len(found.others)
    return found.page(
        title="dlscale report", made=f"{count:,} record{'s' * (count > 1)}, drawn by dlscale {runner.__version__}"
    )


def _write(found: Collected, place: Path, *, console: Console) -> None:
    """Write the page in both forms first, so that it can be read, then its figures as CSV and, unless there is a caveat, as PNG."""
    page = _page(found)
    check_writable(place / FIGURES_FOLDER)
    now = datetime.now(timezone.utc)
    dated = page.model_copy(update={"made": f"{page.made} at {now:%Y-%m-%d %H:%M} UTC"})
    html = render.html(dated, figures_folder=FIGURES_FOLDER, pictures=not found.caveat)
    written = [write_report(place, KEPT_PAGE, markdown(page)), write_report(place, PAGE, html)]
    with progress(open_console(stderr=True)) as shown:
        if len(page.figures) > FIGURES_PER_LINE:
            shown.stage(f"{written[-1]} is ready; drawing its {len(page.figures)} figures as files")
        for number, figure in enumerate(page.figures):
            if number and number % FIGURES_PER_LINE == 0:
                shown.stage(f"{number} of {len(page.figures)} figures drawn")
            write_report(place / FIGURES_FOLDER, f"{figure.name}.csv", model.to_csv(figure))
            drawn = None if found.caveat else picture.png(figure)
            if drawn:
                write_report(place / FIGURES_FOLDER, f"{figure.name}.png", drawn)
    kind = "CSV" if found.caveat else "PNG and CSV"
    for text in (
        f"figures: {len(page.figures)} as {kind} in {place / FIGURES_FOLDER}",
        *(f"report: {one}" for one in written),
    ):
        console.print(text, style="dim")


def _baselines(runs: Sequence[Run]) -> list[Run]:
    """The one-device runs of earlier matrices that speedups of these are relative to; if one is gone, its speedups are left out."""
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


_LOG_SUFFIX = ".mllog.txt"


def write_logs(places: Sequence[Path], *, out: Path | None) -> None:
    """Write one log per run, to `out` or next to the run; print each path, and which runs have no log.

    Raises:
        RequestError: there is no record, or `out` is not writable.
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
        path = write_report(out or run[0].parent, f"{run[1].run_id}{_LOG_SUFFIX}", text)
        console.print(f"log: {path}")
    for sentence in found.skipped:
        console.print(f"no log: {sentence}", style="yellow")
    if not written:
        raise RequestError(f"{', '.join(map(str, places))}: holds no measured training; name another directory")


def _log_of(run: Run) -> tuple[str | None, str]:
    """The log of a run, or the reason why there is none. Raises RequestError if its events can't be read."""
    directory, record = run
    if record.profiled:
        return None, "a pass under a profiler"
    if isinstance(record.trial, Trial) and record.trial.mode == "infer":
        return None, "inference, and the log is for training"
    return mllog(record, read_events(directory)), "it never began to train"
