"""The main job, from a request to a report: look, plan, prepare, run every trial, publish. Each stage hands its result on."""

from __future__ import annotations

import secrets
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from runner import provenance
from runner.cluster import PORTS, free_ports
from runner.comparison import settle
from runner.dialects import DIALECTS, Facts, Reader
from runner.dialects.figures import FiguresReader
from runner.engines import shaper
from runner.engines.base import EngineError
from runner.errors import NoBaseError
from runner.execute import Limits, execute
from runner.grade import grade, scaling
from runner.ground import EngineChoice, Ground, look
from runner.keys import handed_out
from runner.launch import launch, monitor
from runner.launch.job import Job, take_seats
from runner.outcome import Outcome
from runner.plan import plan
from runner.prepare import Prepared, foresee, prepare
from runner.report.progress import Progress, progress
from runner.report.watch import Watch, title
from runner.request import Request
from runner.results import (
    ImageUsed,
    RunPlan,
    RunRecord,
    RunWriter,
    baseline_for,
    check_writable,
    read_table,
    records_under,
)
from runner.sampling import sampling
from runner.spec import ContainerSpec
from runner.trial import Trial

Run = tuple[Path, RunRecord]
Known = Callable[[Trial, ImageUsed], Run | None]
"""Finds a run on file of a trial in an image, which then need not be run again."""


def bench(request: Request, *, command: tuple[str, ...]) -> int:
    """Run a request to its report and return the exit code.

    Raises:
        RequestError: it can't be met; nothing was started.
        RunFailedError: a run could not be recorded.
    """
    name = stamp()
    with progress(Console(stderr=True, highlight=False)) as shown:
        runs = run(request, command=command, name=name, shown=shown)
    # pandas and matplotlib take a second to load: after the runs, not before the first step.
    from runner.report.publish import publish  # noqa: PLC0415

    publish(runs, out=runs[0][0].parent, name=name, console=Console(highlight=False, soft_wrap=True))
    return exit_code([record for _, record in runs])


def run(
    request: Request,
    *,
    command: tuple[str, ...],
    name: str,
    shown: Progress,
    known: Known = lambda _, __: None,
    wanted: Callable[[Trial], bool] = lambda _: True,
) -> list[Run]:
    """Run a request to its records.

    Args:
        request: what was asked.
        command: the command line, for the records.
        name: begins every run id.
        shown: told what happens.
        known: asked before each trial; a run that it knows is taken instead.
        wanted: which trials of the plan to run.

    Raises:
        RequestError: it can't be met; nothing was started.
        RunFailedError: a run could not be recorded.
    """
    request = settle(request)
    ground = look(request, say=shown.stage)
    with closing(ground.fleet):
        trials = plan(request, ground)
        check_writable(ground.out)
        try:
            prepared = prepare(ground, shown, packed_at=trials[0].packed_at, run=name)
        except NoBaseError as error:
            if request.engine is not None or ground.fleet.way != "here":
                raise
            ground = replace(ground, engine=EngineChoice("venv", f"no image can be built here: {error}"))
            ground.check_engine()
            trials = plan(request, ground)
            prepared = prepare(ground, shown, packed_at=trials[0].packed_at, run=name)
        try:
            _check_links(trials, prepared)
            matrix = _Matrix(request, ground, prepared, shown, command, name, known)
            return matrix.run_all([trial for trial in trials if wanted(trial)])
        finally:
            prepared.release()


def _check_links(trials: Sequence[Trial], prepared: Prepared) -> None:
    """See whether the links of emulated nodes can be had here, before the first trial.

    Raises:
        RequestError: they can't.
    """
    if prepared.tools:
        links = dict.fromkeys(trial.link for trial in trials if trial.link)
        shaper.check(next(iter(prepared.engines.values())), image=prepared.tools, links=links)


def dry_run(request: Request) -> int:
    """Print the command lines that `bench` would run, and start nothing."""
    request = settle(request)
    ground = look(request, contact=False)
    trials = plan(request, ground)
    prepared = foresee(ground, packed_at=trials[0].packed_at)
    for number, trial in enumerate(trials, start=1):
        sys.stdout.write(f"# {title(trial)}, repeat {trial.repeat}\n")
        job = make_job(trial, ground, prepared, run_id=f"RUN{number}")
        for spec in launch(job):
            where = f"# on {spec.node}\n" if trial.nodes > 1 else ""
            sys.stdout.write(f"{where}{prepared.describer.command_line(spec)}\n")
        for spec in samplers(job, prepared, hz=request.telemetry_hz):
            sys.stdout.write(f"# beside it on {spec.node}\n{prepared.samplers.describer.command_line(spec)}\n")
    return 0


def exit_code(records: Sequence[RunRecord]) -> int:
    """0 when all is well, 3 when a run failed, 4 when one is invalid."""
    if any(record.outcome.status != "ok" for record in records):
        return 3
    return 4 if any(record.validity.status == "invalid" for record in records) else 0


@dataclass(frozen=True)
class _Matrix:
    """The trials of one request, run one after the other.

    Attributes:
        name: begins every run id, and names the reports.
    """

    request: Request
    ground: Ground
    prepared: Prepared
    shown: Progress
    command: tuple[str, ...]
    name: str
    known: Known

    def run_all(self, trials: Sequence[Trial]) -> list[Run]:
        """Run the trials in order. A scale whose run failed is not tried again; Ctrl-C ends the matrix."""
        asked = self.request.gpus or self.request.workers
        on_file = list(records_under(self.ground.out)) if asked and 1 not in asked else []
        runs: list[Run] = []
        failed: set[str] = set()
        for trial in trials:
            if failed & {cell(trial), cell(trial.measured)}:
                continue
            if found := self.known(trial, self.prepared.image_used):
                runs.append(found)
                continue
            baseline = baseline_for(trial, [*on_file, *runs])
            if trial.world_size == 1 and not trial.profile and (known := baseline_for(trial, on_file)):
                self.shown.stage(f"1-device baseline on file: {known[1].run_id}")
                runs += [] if known in runs else [known]
                continue
            directory, record = self._run(trial, baseline[1] if baseline else None)
            runs.append((directory, record))
            if record.outcome.status != "ok":
                failed.add(cell(trial))
            if record.outcome.status == "interrupted":
                break
        return runs

    def _run(self, trial: Trial, baseline: RunRecord | None) -> Run:
        """Run one trial and leave its record, whatever becomes of it."""
        run_id = f"{self.name}-{trial.framework}-{trial.model}-{cell(trial)}-r{trial.repeat}"
        job = make_job(trial, self.ground, self.prepared, run_id=run_id)
        specs = launch(job)
        beside = samplers(job, self.prepared, hz=self.request.telemetry_hz)
        describer = self.prepared.describer
        fleet = self.ground.fleet
        facts = provenance.collect(
            node=self.ground.node,
            command=self.command,
            host=fleet.host,
            nodes=fleet.used(trial.placement, image_ids=self.prepared.image_ids) if trial.nodes > 1 else (),
        )
        writer = RunWriter(self.ground.out / run_id)
        planned = RunPlan(
            run_id=run_id,
            trial=trial,
            containers=(*specs, *beside),
            command_lines=(
                *map(describer.command_line, specs),
                *map(self.prepared.samplers.describer.command_line, beside),
            ),
        )
        writer.create(planned)
        watch = Watch(self.shown, trial)
        outcome = self._execute(job, specs, beside, writer, watch)
        writer.settle(planned)
        outcome = outcome.model_copy(update={"phases_s": {"build": self.prepared.seconds, **outcome.phases_s}})
        if outcome.status in ("failed", "silent", "timeout") and (apart := fleet.apart(trial.placement)):
            outcome = outcome.model_copy(update={"reason": f"{apart}; {outcome.reason}"})
        graded = grade(
            trial=trial,
            outcome=outcome,
            events=watch.events,
            samples=read_table(writer.directory, "telemetry"),
            monitors=planned.monitors,
            provenance=facts,
            workload=self.ground.workload,
            kernels=read_table(writer.directory, "kernels") if trial.profile else None,
        )
        record = RunRecord(
            run_id=run_id,
            matrix_id=self.name,
            trial=trial,
            engine=describer.name,
            engine_details=self.prepared.engine_details,
            image=self.prepared.image_used,
            outcome=graded.outcome,
            measurement=graded.measurement,
            scaling=scaling(trial, run_id, graded, baseline),
            transport=graded.transport,
            provenance=facts.with_environment(watch.env) if watch.env else facts,
            validity=graded.validity,
            telemetry=graded.telemetry,
            profile=graded.profile,
        )
        writer.finish(record)
        watch.ended(record)
        return writer.directory, record

    def _execute(
        self,
        job: Job,
        specs: Sequence[ContainerSpec],
        beside: Sequence[ContainerSpec],
        writer: RunWriter,
        watch: Watch,
    ) -> Outcome:
        """Run the containers with the keys that they need, which no host keeps, and with samplers beside them."""
        limits = Limits.of(self.request, profile=job.trial.profile is not None)
        began = time.monotonic()
        try:
            with (
                sampling(
                    beside,
                    engines=self.prepared.samplers.engines,
                    writer=writer,
                    watch=watch,
                    idle_s=self.request.idle_s,
                ),
                handed_out(job, self.prepared.engines),
            ):
                return execute(
                    engines=self.prepared.engines,
                    specs=specs,
                    writer=writer,
                    limits=limits,
                    watch=watch,
                    readers=readers(job.trial, specs),
                    remote=job.remote,
                )
        except EngineError as error:
            reason = f"the keys of the run could not be handed out: {error}"
            return Outcome(status="failed", reason=reason, exit_codes={}, started=began, phases_s={})
        except KeyboardInterrupt:  # before the first container of the job, while the machine was looked at idle
            reason = "stopped by Ctrl-C"
            return Outcome(status="interrupted", reason=reason, exit_codes={}, started=began, phases_s={})


def samplers(job: Job, prepared: Prepared, *, hz: int) -> tuple[ContainerSpec, ...]:
    """What looks on while a job runs."""
    room = prepared.samplers
    return monitor.specs(job, hz=hz, image=room.image, site=room.describer.site(None))


def readers(trial: Trial, specs: Sequence[ContainerSpec]) -> dict[str, Reader]:
    """By container, what reads the figures that a program leaves to the framework's own log; a pass under a profiler has none."""
    if trial.dialect is None or trial.profile:
        return {}
    found: dict[str, Reader] = {}
    for spec in specs:
        facts = Facts(
            batch_per_device=trial.batch_per_device,
            devices=trial.world_size,
            warmup=trial.warmup,
            container=spec.name,
            command=spec.argv,
        )
        found[spec.name] = FiguresReader(DIALECTS[trial.dialect](facts), iterations=trial.iterations)
    return found


def make_job(trial: Trial, ground: Ground, prepared: Prepared, *, run_id: str) -> Job:
    """A trial with the paths, user and port that it runs with; each job gets a port of its own."""
    describer = prepared.describer
    nodes = {}
    for member in ground.fleet.members:
        ports = free_ports(PORTS) if ground.fleet.way == "here" else turned(member.node.ports, run_id)
        nodes[member.node.name] = member.node.model_copy(update={"ports": ports})
    return Job(
        run_id=run_id,
        trial=trial,
        seats=take_seats(trial, nodes, network="host" if ground.fleet.way == "hosts" else "emulated"),
        site=describer.site(prepared.data),
        image=prepared.image_used.reference,
        user=describer.user(),
        mounts=describer.mounts(prepared.data),
        remote=ground.fleet.way == "hosts",
        tools=prepared.tools,
    )


def turned(ports: tuple[int, ...], run_id: str) -> tuple[int, ...]:
    """A node's ports, begun at another place for each run: the one before may still hold its own for a minute."""
    first = zlib.crc32(run_id.encode()) % len(ports)
    return ports[first:] + ports[:first]


def cell(trial: Trial) -> str:
    """What tells a trial from the others of its matrix, but for the repeat: `2cpu`, `16gpu-4nodes-ethernet-1gbit`, `2cpu-profile-memory`."""
    words = [f"{trial.world_size}{trial.device}"]
    if trial.nodes > 1:
        words.append(f"{trial.nodes}nodes")
    if trial.interconnect != "auto":
        words.append(trial.interconnect)
    if trial.link:
        words.append(trial.link.label.removeprefix("emulated").strip().replace(" ", "-") or "unshaped")
    if trial.profile:
        words.append(f"profile-{trial.profile.kind}")
    return "-".join(words)


def stamp() -> str:
    """Sorts by time and is never used twice: UTC to the second and two random bytes."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
