"""The main job, from a request to a report: discover, plan, prepare, run every trial, publish. Each stage passes its result to the next."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from runner.cluster.cleanup import removed_if_killed
from runner.core.console import notify, open_console
from runner.core.errors import NoBaseError
from runner.core.record import RunRecord
from runner.core.request import SLURM, Request
from runner.core.trial import AnyTrial, ExternalTrial, Trial, title
from runner.engines import shaper
from runner.engines.process import become
from runner.plan import slurm
from runner.plan.choice import trials_of
from runner.plan.discovery import AnyResources, ExternalResources, Resources, discover, emulate_for_comparison
from runner.plan.engine import EngineChoice
from runner.plan.layout import Prepared, lay_out
from runner.report.progress import Progress, progress
from runner.results.disk import check_writable, remove_stale_drafts
from runner.results.find import Run
from runner.results.store import RESERVE_BYTES, named_baseline
from runner.run.prepare import prepare, preview
from runner.run.trial_runner import RecordedRuns, Reuse, TrialRunner


def bench(request: Request, *, command: tuple[str, ...], as_json: bool = False, verbose: bool = False) -> int:
    """Run a request, publish its report, print it (in full if `verbose`), and return the exit code.

    `command` is the command line, for the records. With `as_json`, the tables' data goes to standard output as JSON, and the tables
    themselves to standard error.
    """
    if request.cluster:
        become(slurm.salloc(request, command))
    name = stamp()
    with progress(open_console(stderr=True)) as shown:
        runs = run(request, command=command, name=name, shown=shown)
    # pyarrow and matplotlib take a second to load, so they are not loaded before a job runs (`report/ahead.py`).
    from runner.report.publish import Measured, publish  # noqa: PLC0415

    publish(
        runs, out=runs[-1][0].parent, name=name, console=open_console(stderr=as_json, soft_wrap=True), verbose=verbose
    )
    if as_json:
        summaries = [summary.model_dump(mode="json") for _, summary in Measured.of(runs).curves]
        sys.stdout.write(json.dumps(summaries, indent=1) + "\n")
    records = [record for _, record in runs]
    notify(_smoke_test(request, records))
    return exit_code(records)


def _smoke_test(request: Request, records: Sequence[RunRecord]) -> Iterator[str]:
    """Point out that the default workload on CPUs, chosen to fit the smallest machine, is a smoke test, if it passed and was not asked for."""
    if request.model or request.image_size or exit_code(records) != 0:
        return
    trial = records[0].trial
    if isinstance(trial, Trial) and trial.device == "cpu":
        yield (
            f"{trial.model} at {trial.image_size}×{trial.image_size} is a smoke test: training works here; to compare machines, train on "
            "images of the usual size: add --model=resnet50 --image-size=224"
        )


def run(
    request: Request,
    *,
    command: tuple[str, ...],
    name: str,
    shown: Progress,
    reuse: Reuse = lambda _, __: None,
    select: Callable[[Trial], bool] = lambda _: True,
) -> list[Run]:
    """Run a request and return its records. Raises RequestError if nothing was started, RunFailedError if a run could not be recorded.

    `command` is the command line, for the records; `name` is the prefix of every run id. `reuse` is called before each trial, or
    with --resume `RecordedRuns`; if it returns a run on file, that one is used instead. `select` selects the trials of the plan to run.
    """
    with ExitStack() as stack:
        if request.engine in (None, "docker") and request.hosts != SLURM:
            stack.enter_context(removed_if_killed(request.hosts))
        request, resources = _discover(request, say=shown.stage)
        stack.enter_context(closing(resources.cluster))
        resources, trials = trials_of(request, resources, say=shown.stage)
        check_writable(resources.out, room=RESERVE_BYTES)
        remove_stale_drafts(resources.out)
        try:
            prepared = prepare(resources, shown, packed_at=trials[0].packed_at, run=name)
        except NoBaseError as error:
            if not isinstance(resources, Resources) or request.engine is not None or resources.cluster.kind != "here":
                raise
            resources = replace(resources, engine=EngineChoice("venv", f"no image can be built here: {error}"))
            resources, trials = trials_of(request, resources, say=shown.stage)
            prepared = prepare(resources, shown, packed_at=trials[0].packed_at, run=name)
        try:
            _check_links(trials, prepared)
            if request.resume:
                reuse = RecordedRuns(resources.out).find
            matrix = TrialRunner(request, resources, prepared, shown, command, name, reuse)
            return matrix.run_all([trial for trial in trials if isinstance(trial, ExternalTrial) or select(trial)])
        finally:
            prepared.release()


def _discover(request: Request, **how: Any) -> tuple[Request, AnyResources]:
    """Return the request, with nodes to emulate if it compares interconnects, and its resources, with its named baseline run."""
    request = emulate_for_comparison(request)
    found = discover(request, **how)
    if isinstance(found, ExternalResources) and request.baseline:
        found = replace(found, baseline=named_baseline(request.baseline, out=found.out, device=found.device))
    return request, found


def _check_links(trials: Sequence[AnyTrial], prepared: Prepared) -> None:
    """Check that this machine can emulate the links of the trials, before the first one starts."""
    if prepared.tools:
        links = dict.fromkeys(trial.link for trial in trials if isinstance(trial, Trial) and trial.link)
        shaper.check(next(iter(prepared.engines.values())), image=prepared.tools, links=links)


def dry_run(request: Request) -> int:
    """Print the command lines that `bench` would run, and start nothing."""
    if request.cluster:
        sys.stdout.write(f"{shlex.join(slurm.salloc(request, sys.argv))}\n")
        return 0
    request, resources = _discover(request, contact=False)
    resources, trials = trials_of(request, resources, say=lambda text: notify([text]))
    if request.resume:
        notify([f"--resume would reuse those of these runs that are in {resources.out}; all are printed"])
    prepared = preview(resources, packed_at=trials[0].packed_at)
    for number, trial in enumerate(trials, start=1):
        sys.stdout.write(f"# {title(trial)}, repeat {trial.repeat}\n")
        found = lay_out(trial, resources, prepared, run_id=f"RUN{number}", hz=request.telemetry_hz)
        for spec in found.containers:
            where = f"# on {spec.node}\n" if trial.nodes > 1 else ""
            sys.stdout.write(f"{where}{prepared.describer.command_line(spec)}\n")
        for spec in found.samplers:
            sys.stdout.write(f"# sampler on {spec.node}\n{prepared.samplers.describer.command_line(spec)}\n")
    return 0


def exit_code(records: Sequence[RunRecord]) -> int:
    """0 if all runs are usable, 3 if one failed, 4 if one is invalid."""
    if any(record.outcome.status != "ok" for record in records):
        return 3
    return 4 if any(record.validity.status == "invalid" for record in records) else 0


def stamp(now: datetime | None = None) -> str:
    """Return a name that sorts by time: UTC to the second, then the fraction of that second in 65,536ths, in hexadecimal.

    Names of older runs end in two random bytes instead, so those of the same second do not sort.
    """
    now = now or datetime.now(timezone.utc)
    return f"{now:%Y%m%dT%H%M%SZ}-{now.microsecond * 2**16 // 10**6:04x}"
