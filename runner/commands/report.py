"""`dlscale report`: draws records that are on file, each matrix as `bench` drew it, what shows across them, and one page of all."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from pathlib import Path
from typing import Final
from urllib.parse import quote

from rich.console import Console

import runner
from runner.analysis.comparisons.devices import devices
from runner.analysis.comparisons.transports import across
from runner.analysis.summarize import thin
from runner.core.console import complain, no_console, open_console
from runner.core.errors import DlscaleError, RequestError
from runner.experiments.overhead import report as overhead_report
from runner.experiments.overhead.raw import PREFIX, read_overhead
from runner.experiments.overhead.rejudge import from_file
from runner.experiments.overhead.report import OverheadReport
from runner.experiments.studies import page as study_page
from runner.experiments.studies.model import Reproduction
from runner.experiments.studies.reproduction import SUFFIX, read_reproduction
from runner.report import picture
from runner.report.comparison import ComparisonReport
from runner.report.comparisons import across_matrices
from runner.report.comparisons import devices as device_report
from runner.report.kept import prune
from runner.report.page import blocks, export, render
from runner.report.page.collect import Collected
from runner.report.page.markdown import markdown
from runner.report.page.model import Page
from runner.report.progress import progress
from runner.report.publish import Measured, of_comparison, redraw, save, watched
from runner.results.disk import check_writable
from runner.results.find import Run, read_runs
from runner.results.store import RECORD, folders_under, read_record, run_directories, write_report

PAGE: Final = "report.html"
KEPT_PAGE: Final = "report.md"
"""The page without figures, which is kept with the records."""
BESIDE: Final = "report-figures"
"""Folder of the page's figures as PNG and CSV."""
MOST: Final = 500
"""Matrices that the page shows. Of more in all it has the newest, and no pictures are drawn of single ones: 20,000 would take an hour."""
TOLD: Final = 25
"""Figures after which a line says how far it is; they take a few seconds."""


def report(directories: Sequence[Path], *, out: Path | None, beside_runs: bool = True) -> None:
    """Write the reports of a run, or of all runs at or below some directories with one page of them, and print where each is.

    Args:
        directories: a run directory, whose reports carry the run's own name; or directories of them at any depth, whose reports carry the
            matrix's. The page is in `out`, or in the directory that holds them all.
        out: where the reports go, those of several folders in folders of the same names; None for beside the run directories.
        beside_runs: whether the reports of directories are written too; if not, the page alone.

    Raises:
        RequestError: no record is there, or `out` takes no file.
        RunFailedError: a report could not be written.
    """
    console = open_console(soft_wrap=True)
    first = directories[0]
    if len(directories) == 1 and (first / RECORD).is_file():
        run = (first, read_record(first))
        # Under a name of its own: a matrix's reports are of all its runs.
        check_writable(out or first.parent)
        redraw([*_baselines([run]), run], out=out or first.parent, name=run[1].run_id, console=console)
        return
    folders = _folders(directories)
    above = first if len(directories) == 1 else Path(os.path.commonpath([one.resolve() for one in directories]))
    place = out or above
    check_writable(place)
    shown, reserve = _newest(folders)
    found = Collected(reserve=reserve)
    for folder, runs in folders:
        beside = out / os.path.relpath(folder.resolve(), above.resolve()) if out else folder
        if beside_runs:
            check_writable(beside)
        to = beside if beside_runs else None
        own = _read(
            folder, runs, page=place, shown=shown, every_one=not reserve, pictures=True, console=console, out=to
        )
        found.join(own, files=_files(beside, page=place))
    found.join(
        _across_folders(folders, out=place if beside_runs else None, console=console), files=_files(place, page=place)
    )
    _write(found, place, console=console)
    prune()


def check_page(directory: Path) -> None:
    """Hold the page that is kept in a directory as Markdown against what the records at and below it give now.

    Raises:
        RequestError: no record is there.
        DlscaleError: there is no such page, or another.
    """
    console = open_console(soft_wrap=True)
    folders = _folders([directory])
    shown, reserve = _newest(folders)
    found = Collected(reserve=reserve)
    for folder, runs in folders:
        own = _read(
            folder, runs, page=directory, shown=shown, every_one=not reserve, pictures=False, console=console, out=None
        )
        found.join(own, files=_files(folder, page=directory))
    found.join(_across_folders(folders, out=None, console=console), files=_files(directory, page=directory))
    path = directory / KEPT_PAGE
    if not path.is_file() or path.read_text(encoding="utf-8") != markdown(_page(found)):
        raise DlscaleError(
            f"{path} differs from what the records give; run `dlscale report {directory}` and commit what it wrote"
        )


def matrices(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each matrix by its name, in the order in which they ran: the first transport is what the others are held against."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run[1].provenance.recorded_at):
        found.setdefault(run[1].matrix_id, []).append(run)
    return found


def _newest(folders: Sequence[tuple[Path, Sequence[Run]]]) -> tuple[frozenset[tuple[Path, str]], str]:
    """The matrices, by folder and name, that the page shows, and what it says where these are not all."""
    last: dict[tuple[Path, str], datetime] = {}
    for folder, runs in folders:
        for _, record in runs:
            place, when = (folder, record.matrix_id), record.provenance.recorded_at
            last[place] = max(last.get(place, when), when)
    newest = sorted(last, key=lambda place: last[place], reverse=True)[:MOST]
    said = (
        f"The newest {MOST:,} of {len(last):,} matrices are here, without a PNG of each; every one has its report beside its runs, and "
        "`dlscale report RUN` draws a run's pictures."
    )
    return frozenset(newest), said if len(last) > MOST else ""


def _folders(directories: Sequence[Path]) -> list[tuple[Path, list[Run]]]:
    """Each folder at or below the directories that holds runs, and these, each run once; says of which records there is nothing.

    Raises:
        RequestError: none does.
    """
    places = dict.fromkeys(folder for directory in directories for folder in folders_under(directory))
    gc.disable()  # all are needed to the end, and the collector would look through them again and again
    try:
        found = read_runs((directory for folder in places for directory in run_directories(folder)), as_read=thin)
        gc.freeze()
    finally:
        gc.enable()
    if not found.runs:
        names = ", ".join(str(directory) for directory in directories)
        raise RequestError(
            f"{names}: holds no run record that can be read; name a run directory, or one of several, for example results/MACHINE"
        )
    complain(found.passed_over)
    folders: dict[Path, list[Run]] = {}
    for run in found.runs:
        folders.setdefault(run[0].parent, []).append(run)
    return list(folders.items())


def _read(
    folder: Path,
    runs: Sequence[Run],
    *,
    page: Path,
    shown: AbstractSet[tuple[Path, str]],
    every_one: bool,
    pictures: bool,
    console: Console,
    out: Path | None,
) -> Collected:
    """Collect what one folder's runs show, and write their reports; none where `out` is None.

    Args:
        folder: where they are.
        runs: all of them.
        page: where the page is, which links lead from.
        shown: the matrices that it shows.
        every_one: whether these are all there are; else no pictures are drawn of single ones.
        pictures: whether the page shows figures, and so what samplers saw over time.
        console: where it is said what is written, and what can't be.
        out: where the reports go.
    """
    found = Collected(records=[(_link(path, page), record) for path, record in runs])
    told = console if every_one else no_console()
    for name, own in matrices(runs).items():
        if not out and (folder, name) not in shown:
            continue
        every = [*_baselines(own), *own]
        measured = redraw(every, out=out, name=name, console=told, pictures=every_one) if out else Measured.of(every)
        if (folder, name) not in shown:
            continue
        seen = {curve.label: watched(curve.runs, console=console) for curve, _ in measured.curves if pictures}
        found.matrix(measured, name=name, watched={label: one for label, one in seen.items() if one})
        found.add("passes", *(block for run in own for block in blocks.profiled(run)))
    if out and not every_one:
        console.print(f"reports: {len(matrices(runs)):,} matrices in {out}", style="dim", markup=False)
    _draw_across(runs, found, out=out, console=console)
    for stem, reproduction in _reproductions(folder, console=console):
        found.add("studies", study_page.block(reproduction, stem=stem))
    for overhead in _overheads(folder, console=console):
        if out:
            save(overhead_report.reports(overhead), out=out, console=console)
        found.add("overheads", overhead_report.page_block(overhead))
    return found


def _draw_across(runs: Sequence[Run], found: Collected, *, out: Path | None, console: Console) -> None:
    """Add what shows only across matrices, and write its reports; none where `out` is None."""
    for name, joined in across(runs).items():
        measured = Measured.across(joined)
        if measured.comparison and out:
            save(of_comparison(measured.comparison, name=name), out=out, console=console)
        found.add("comparisons", *blocks.comparison(measured, name=name))
    _add(across_matrices(runs), found, out=out, console=console)


def _across_folders(folders: Sequence[tuple[Path, Sequence[Run]]], *, out: Path | None, console: Console) -> Collected:
    """Collect what GPUs of a kind made of the same trainings, in whichever folder these lie, and write its reports; none where `out` is None."""
    collected = Collected()
    found = devices([run for _, runs in folders for run in runs])
    _add(map(device_report, found), collected, out=out, console=console)
    return collected


def _add(reports: Iterable[ComparisonReport], found: Collected, *, out: Path | None, console: Console) -> None:
    for one in reports:
        if out:
            save(one.files(), out=out, console=console)
        found.add(one.chapter, one.page_block())


def _link(path: Path, page: Path) -> str:
    """Where a run directory or a report is, seen from the page; a folder is looked up once for all that is in it."""
    if path.is_symlink():
        return quote(_seen_from(page, path))
    return quote(f"{_seen_from(page, path.parent)}/{path.name}".removeprefix("./"))


@functools.cache
def _seen_from(page: Path, path: Path) -> str:
    return Path(os.path.relpath(path.resolve(), page.resolve())).as_posix()


def _files(folder: Path, *, page: Path) -> dict[str, str]:
    """By their names, where the reports in a folder are, seen from the page."""
    found = sorted(path for kind in ("png", "md", "csv") for path in folder.glob(f"*.{kind}"))
    return {path.name: _link(path, page) for path in found}


def _reproductions(folder: Path, *, console: Console) -> Iterator[tuple[str, Reproduction]]:
    """Studies that were run there, by the name of their file; one that can't be read costs itself only."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            yield path.name.removesuffix(SUFFIX), read_reproduction(path)
        except RequestError as error:
            console.print(f"not drawn: {error}", style="yellow")


def _overheads(folder: Path, *, console: Console) -> Iterator[OverheadReport]:
    """What the suite was found to cost there; one that can't be read, or whose runs are gone, costs itself only."""
    for path in sorted(folder.glob(f"{PREFIX}*.json")):
        try:
            yield from_file(read_overhead(path), folder)
        except DlscaleError as error:
            console.print(f"not drawn: {path.name}: {error}", style="yellow", markup=False)


def _page(found: Collected) -> Page:
    return found.page(
        title="dlscale report", made=f"{len(found.records):,} records, drawn by dlscale {runner.__version__}"
    )


def _write(found: Collected, place: Path, *, console: Console) -> None:
    """Write the page in both forms and, beside it, each of its figures as PNG and CSV."""
    page = _page(found)
    check_writable(place / BESIDE)
    with progress(open_console(stderr=True)) as shown:
        for number, figure in enumerate(page.figures):
            if number and number % TOLD == 0:
                shown.stage(f"{number} of {len(page.figures)} figures drawn")
            write_report(place / BESIDE, f"{figure.name}.csv", export.to_csv(figure))
            drawn = None if found.reserve else picture.png(figure)
            if drawn:
                write_report(place / BESIDE, f"{figure.name}.png", drawn)
    console.print(
        f"figures: {len(page.figures)} as {'CSV' if found.reserve else 'PNG and CSV'} in {place / BESIDE}",
        style="dim",
        markup=False,
    )
    now = datetime.now(timezone.utc)
    dated = page.model_copy(update={"made": f"{page.made} at {now:%Y-%m-%d %H:%M} UTC"})
    save(
        {KEPT_PAGE: markdown(page), PAGE: render.html(dated, beside=BESIDE, pictures=not found.reserve)},
        out=place,
        console=console,
    )


def _baselines(runs: Sequence[Run]) -> list[Run]:
    """One-device runs of earlier matrices that speedups of these are against; one that is gone leaves its speedups out."""
    known = {record.run_id for _, record in runs}
    found: dict[str, Run] = {}
    for path, record in runs:
        name = record.scaling.baseline_run_id
        if name and name not in known and name not in found:
            try:
                found[name] = (path.parent / name, thin(read_record(path.parent / name)))
            except RequestError:
                continue
    return list(found.values())
