"""`dlscale reproduce`: survey the machine, plan the cells, run them, judge, write. Each stage hands its result on.

What was run before is taken from the directory, so that a study which was stopped goes on where it was.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from runner.core.cache import alone, cache_dir
from runner.core.console import open_console
from runner.core.dataset import inspect
from runner.core.errors import DlscaleError, RequestError, nearest
from runner.core.provenance import SUITE_ROOT
from runner.core.record import ImageUsed
from runner.core.request import BARE_ENGINES, Request
from runner.core.trial import AnyTrial, Trial
from runner.engines.git import read_git
from runner.experiments.studies import tables
from runner.experiments.studies.cells import cells, requests
from runner.experiments.studies.machine import survey
from runner.experiments.studies.model import Cell, CellRun, Machine, Reproduction, Run, is_baseline
from runner.experiments.studies.reproduction import SUFFIX, judge
from runner.experiments.studies.request import Scale, StudyRequest
from runner.experiments.studies.study import load_study, study_names
from runner.plan.discovery import read_by_others
from runner.report.progress import Progress, progress
from runner.results.disk import check_writable
from runner.results.find import records_under
from runner.results.store import write_report
from runner.run import bench, trial_runner
from runner.run.sample import make_sample


def place_in_study(seconds: Sequence[float], *, total: int) -> str:
    """`[3/22, about 6 min left]`, of the request that begins now; those to come are taken to be like those that are done.

    Args:
        seconds: how long each request took that is done.
        total: how many there are.
    """
    place = f"{len(seconds) + 1}/{total}"
    if not seconds:
        return f"[{place}]"
    left_s = sum(seconds) / len(seconds) * (total - len(seconds))
    return f"[{place}, about {max(1, round(left_s / 60))} min left]"


class RunsOnFile:
    """What `out` has of each trial.

    A run counts for a trial that is equal to its own in every field: scale, batch, wires, link, profile, concurrent trainings, data. The
    key in it covers machine, engine, lock and the programs' source; the image is held against that of the run.
    """

    def __init__(self, out: Path) -> None:
        self._runs: dict[str, list[trial_runner.Run]] = {}
        for run in records_under(out):
            self.add(run)

    def add(self, run: trial_runner.Run) -> None:
        """Remember a run that may be used; one that failed or is invalid is tried again."""
        _, record = run
        if record.outcome.status == "ok" and record.validity.status != "invalid" and isinstance(record.trial, Trial):
            self._runs.setdefault(record.trial.key, []).append(run)

    def find(self, trial: AnyTrial, image: ImageUsed) -> trial_runner.Run | None:
        """The newest run of this trial in this image; None if there is none."""
        wanted = (trial, image.id, image.lock_sha256)
        known = [(run, run[1].image) for run in self._runs.get(trial.key, [])]
        own = [run for run, used in known if (run[1].trial, used.id, used.lock_sha256) == wanted]
        return max(own, key=lambda run: run[1].run_id, default=None)


IMAGES: Final[dict[Scale, int]] = {"full": 2000, "small": 88}
"""Enough for an accuracy; the small one has eight of each class, so that an epoch of ResNet-152 ends within seconds on two cores."""

SEED: Final = 1


def sample_path(scale: Scale) -> Path:
    """Where it is, or will be."""
    return cache_dir() / "samples" / f"photographs-{IMAGES[scale]}"


def ensure_sample(scale: Scale, *, report: Callable[[str], None]) -> Path:
    """Make it if it is not there; a half-made one never has its name.

    Raises:
        RequestError: what makes it can't be installed.
    """
    path = sample_path(scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_suffix(".lock"), waiting=lambda: report(f"waiting for another run to make {path}")):
        if not path.exists():
            draft = path.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            make_sample(draft, images=IMAGES[scale], seed=SEED, report=report)
            draft.rename(path)
    return path


@dataclass(frozen=True)
class _Ran:
    """What became of the requests: runs of each, or why there are none; `stopped` after Ctrl-C and its like."""

    runs: dict[Request, list[trial_runner.Run]]
    whys: dict[Request, str]
    stopped: bool


def reproduce(options: StudyRequest, *, command: tuple[str, ...]) -> int:
    """Run a study's cells that this hardware can run, and hold what comes out against the source; returns the exit code.

    Raises:
        RequestError: there is no such study, DATA is no data set, or nothing of it can run here.
    """
    console = tables.screen()
    study, source = load_study(options.study or "")
    with progress(open_console(stderr=True)) as shown:
        machine = survey(_where(options), gpus=study.same.gpus, say=shown.stage)
    if options.data:
        containers = machine.engine not in BARE_ENGINES
        inspect(options.data, by_others=read_by_others(in_containers=containers, on_hosts=machine.hosts is not None))
    found = cells(
        study,
        source=source,
        machine=machine,
        scale=options.scale,
        sample=sample_path(options.scale),
        data=options.data.resolve() if options.data else None,
        stand_in=_stand_in(options, machine),
    )
    found = _chosen(found, options)
    tables.print_plan(console, study, found, machine=machine, scale=options.scale)
    if not requests(found):
        raise RequestError(f"nothing of STUDY={study.id} can run on {machine.name}; the reasons are above")
    if options.dry_run:
        return 0
    out = options.out or SUITE_ROOT / "results" / machine.name
    check_writable(out)
    with progress(open_console(stderr=True)) as shown:
        ran = _run(found, options, out=out, command=command, shown=shown)
    runs = tuple(_cell_run(cell, ran) for cell in found)
    reproduction = judge(
        study,
        published=source,
        runs=runs,
        machine=machine,
        scale=options.scale,
        made_at=datetime.now(timezone.utc),
        git=read_git(SUITE_ROOT).commit,
    )
    _write(reproduction, out, console)
    if ran.stopped:
        console.print(f"stopped; the same command goes on from here: {shlex.join(command)}", style="yellow")
    return _exit_code(reproduction, stopped=ran.stopped)


def _where(options: StudyRequest) -> Request:
    given = {"device": options.device, "hosts": options.hosts, "engine": options.engine}
    return Request.model_validate({name: value for name, value in given.items() if value is not None})


def _stand_in(options: StudyRequest, machine: Machine) -> str | None:
    """The framework that was asked for.

    Raises:
        RequestError: the suite has none of that name.
    """
    known = {image.framework for image in machine.images}
    if options.framework and options.framework not in known:
        raise RequestError(f"unknown FRAMEWORK {options.framework!r}; known: {nearest(options.framework, known)}")
    return options.framework


def _chosen(found: Sequence[Cell], options: StudyRequest) -> tuple[Cell, ...]:
    """The cells that were asked for, all of them where none was named.

    Raises:
        RequestError: a name that is no cell's.
    """
    for name in options.cells:
        if not any(cell.id.startswith(name) for cell in found):
            blocks = ", ".join(dict.fromkeys(cell.block for cell in found))
            raise RequestError(f"CELLS={name}: no cell of STUDY={options.study} begins so; its blocks: {blocks}")
    return tuple(cell for cell in found if not options.cells or cell.id.startswith(options.cells))


def _run(found: Sequence[Cell], options: StudyRequest, *, out: Path, command: tuple[str, ...], shown: Progress) -> _Ran:
    """Run every request once. One that fails does not end the study; Ctrl-C does, and leaves what is done."""
    on_file, ran = RunsOnFile(out), _Ran({}, {}, stopped=False)
    todo = requests(found)
    seconds: list[float] = []
    for request in todo:
        own = [cell for cell in found if cell.request == request]
        shown.stage(f"{place_in_study(seconds, total=len(todo))} {', '.join(cell.id for cell in own)}")
        began = time.monotonic()
        try:
            if request.data == sample_path(options.scale):
                ensure_sample(options.scale, report=shown.stage)
            runs = bench.run(
                request.model_copy(update={"out": out, "engine": options.engine}),
                command=command,
                name=bench.stamp(),
                shown=shown,
                known=on_file.find,
                wanted=partial(_is_wanted, own),
            )
        except KeyboardInterrupt:
            return _Ran(ran.runs, ran.whys, stopped=True)
        except DlscaleError as error:
            ran.whys[request] = str(error)
            shown.stage(f"failed: {error}")
            continue
        finally:
            seconds.append(time.monotonic() - began)
        ran.runs[request] = runs
        for run in runs:
            on_file.add(run)
        if any(record.outcome.status == "interrupted" for _, record in runs):
            return _Ran(ran.runs, ran.whys, stopped=True)
    return ran


def _is_wanted(cells: Sequence[Cell], trial: Trial) -> bool:
    return any(cell.pick is not None and cell.pick.wants(trial) for cell in cells)


def _cell_run(cell: Cell, ran: _Ran) -> CellRun:
    """A cell with those runs of its request that are its own, and their baseline."""
    if cell.request is None or cell.pick is None:
        return CellRun(cell=cell, why=cell.why)
    runs = [Run(directory=path.name, record=record) for path, record in ran.runs.get(cell.request, [])]
    own = tuple(run for run in runs if cell.pick.takes(run.record.trial))
    bad = [run.record.outcome.reason for run in own if run.record.outcome.status != "ok"]
    keys = {run.record.trial.key for run in own}
    return CellRun(
        cell=cell,
        runs=own,
        baseline=tuple(run for run in runs if is_baseline(run.record.trial) and run.record.trial.key in keys),
        why=ran.whys.get(cell.request) or next((reason for reason in bad if reason), None),
    )


def _write(reproduction: Reproduction, out: Path, console: Console) -> None:
    """Print the tables, and leave them beside the runs."""
    name = f"{reproduction.made_at:%Y%m%dT%H%M%SZ}-{reproduction.study}"
    data = write_report(out, f"{name}{SUFFIX}", reproduction.model_dump_json(indent=1) + "\n")
    text = write_report(out, f"{name}.md", tables.markdown(reproduction))
    tables.print_reproduction(console, reproduction)
    for path in (data, text):
        console.print(f"written: {path}", style="dim", markup=False, soft_wrap=True)


def _exit_code(reproduction: Reproduction, *, stopped: bool) -> int:
    """0 when every cell that can run has runs that may be used; 3 otherwise."""
    return 3 if stopped or any(cell.status in ("failed", "open") for cell in reproduction.cells) else 0


def list_studies(options: StudyRequest) -> None:
    """Print every study with how many of its cells can run here, and why the others can't."""
    console = tables.screen()
    found: list[tuple[str, str, Machine, tuple[Cell, ...]]] = []
    for name in study_names():
        study, source = load_study(name)
        machine = survey(_where(options), gpus=study.same.gpus)
        path = sample_path(options.scale)
        own = cells(study, source=source, machine=machine, scale=options.scale, sample=path, data=options.data)
        found.append((name, study.title, machine, own))
    tables.print_studies(console, found)
