"""The trials of one request, run one after the other, or at once where that is what is asked: each leaves its record."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from runner.cluster.machine import provenance
from runner.cluster.machine.cluster import PORTS, free_ports
from runner.core.container_spec import ContainerSpec
from runner.core.events import Event
from runner.core.events.training import Pace
from runner.core.interrupts import Stopped, held
from runner.core.record import ImageUsed, Outcome, RunPlan, RunRecord
from runner.core.request import Request
from runner.core.trial import Trial, paced
from runner.plan.discovery import Resources
from runner.plan.launch import launch, monitor
from runner.plan.launch.job import Job, take_seats
from runner.report.progress import Aside, Progress
from runner.results.find import records_under
from runner.results.store import RunWriter, baseline_for
from runner.run import compiled, ssh_keys
from runner.run.dialects import DIALECTS
from runner.run.dialects.base import Facts, Reader
from runner.run.dialects.figures import FiguresReader
from runner.run.execute import Limits, execute
from runner.run.monitors import monitoring
from runner.run.prepare import Prepared
from runner.run.watch import Watch

# Frameworks whose import takes well over a second, in which no GPU is used yet.
_SLOW_TO_IMPORT: Final = frozenset({"pytorch", "tensorflow"})

Run = tuple[Path, RunRecord]
Known = Callable[[Trial, ImageUsed], Run | None]
"""Finds a run on file of a trial in an image, which then need not be run again."""


@dataclass(frozen=True)
class TrialRunner:
    """The trials of one request, run one after the other.

    Attributes:
        name: begins every run id, and names the reports.
        stopped: marked once a trial under way is to end, and no other to begin.
    """

    request: Request
    resources: Resources
    prepared: Prepared
    shown: Progress
    command: tuple[str, ...]
    name: str
    known: Known
    stopped: Stopped = field(default_factory=Stopped)

    def run_all(self, trials: Sequence[Trial]) -> list[Run]:
        """Run the trials in order, those that belong together at once. A scale whose run failed is not tried again.

        Raises:
            KeyboardInterrupt: it was stopped, too late for the record of the run that was under way to say so.
        """
        asked = self.request.gpus or self.request.workers
        on_file = list(records_under(self.resources.out)) if asked and 1 not in asked else []
        valid = [run for run in on_file if run[1].validity.status == "valid"]
        runs: list[Run] = []
        failed: set[str] = set()
        for group in at_once(trials):
            trial = group[0]
            if failed & {cell(trial), cell(trial.measured)}:
                continue
            if all(found := [self.known(one, self.prepared.image_used) for one in group]):
                runs += [run for run in found if run]
                continue
            if len(group) > 1:
                with held(self.stopped):
                    done = self._run_together(group)
            elif trial.world_size == 1 and not trial.profile and (known := baseline_for(trial, valid)):
                self.shown.stage(f"1-device baseline on file: {known[1].run_id}")
                runs += [] if known in runs else [known]
                continue
            else:
                baseline = baseline_for(trial, [*on_file, *runs])
                trial = alike(trial, [*on_file, *runs])
                job = make_job(trial, self.resources, self.prepared, run_id=self._run_id(trial))
                with held(self.stopped):
                    done = [self._run(job, self.shown, baseline[1] if baseline else None)]
            runs += done
            failed |= {
                cell(record.trial)
                for _, record in done
                if isinstance(record.trial, Trial) and record.outcome.status != "ok"
            }
            if any(record.outcome.status == "interrupted" for _, record in done):
                break
            if self.stopped.by:
                raise KeyboardInterrupt
        return runs

    def _run_id(self, trial: Trial) -> str:
        return f"{self.name}-{trial.framework}-{trial.model}-{cell(trial)}-r{trial.repeat}"

    def _run_together(self, trials: Sequence[Trial]) -> list[Run]:
        """Run several trainings at once, each with its own containers and record; the first one's progress stands for all."""
        jobs = [make_job(trial, self.resources, self.prepared, run_id=self._run_id(trial)) for trial in trials]
        with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
            going = [
                pool.submit(self._run, job, self.shown if number == 0 else Aside(self.shown), None)
                for number, job in enumerate(jobs)
            ]
            return [one.result() for one in going]

    def _run(self, job: Job, shown: Progress, baseline: RunRecord | None) -> Run:
        """Run one trial and leave its record, whatever becomes of it."""
        trial, run_id = job.trial, job.run_id
        compiled.make_ready(job.mounts, user=job.user)
        specs = launch(job)
        beside = samplers(job, self.prepared, hz=self.request.telemetry_hz)
        describer = self.prepared.describer
        cluster = self.resources.cluster
        facts = provenance.collect(
            node=self.resources.node,
            command=self.command,
            host=cluster.host,
            nodes=cluster.used(trial.placement, image_ids=self.prepared.image_ids) if trial.nodes > 1 else (),
        )
        writer = RunWriter(self.resources.out / run_id)
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
        watch = Watch(shown, trial, unit=self.resources.workload.unit)
        outcome = self._execute(job, specs, beside, writer, watch)
        writer.settle(planned)
        outcome = outcome.model_copy(update={"phases_s": {"build": self.prepared.seconds, **outcome.phases_s}})
        if outcome.status in ("failed", "silent", "timeout") and (apart := cluster.apart(trial.placement)):
            outcome = outcome.model_copy(update={"reason": f"{apart}; {outcome.reason}"})
        # numpy takes a fifth of a second to load: not before the job is under way (`report/ahead.py`).
        from runner.analysis.grading.grade import grade, scaling  # noqa: PLC0415

        trial = as_run(trial, watch.events)
        graded = grade(
            trial=trial,
            outcome=outcome,
            events=watch.events,
            samples=writer.table("telemetry", report=shown.stage),
            monitors=planned.monitors,
            provenance=facts,
            workload=self.resources.workload,
            kernels=writer.table("kernels", report=shown.stage) if trial.profile else None,
            containers=planned.containers,
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
        """Run the containers with the keys that they need, and with samplers beside them."""
        with monitoring(
            beside,
            engines=self.prepared.samplers.engines,
            writer=writer,
            watch=watch,
            idle_s=self.request.idle_s,
            stopped=self.stopped,
            gpus_rest=job.trial.framework in _SLOW_TO_IMPORT,
        ):
            return execute(
                engines=self.prepared.engines,
                specs=specs,
                writer=writer,
                limits=Limits.of(self.request, job.trial),
                watch=watch,
                readers=readers(job.trial, specs),
                keys=ssh_keys.made(job, specs),
                remote=job.remote,
                stopped=self.stopped,
            )


def alike(trial: Trial, runs: Sequence[Run]) -> Trial:
    """A trial whose length follows its rate, with windows of as many iterations as the first run of the same key had."""
    first = next(
        (
            record.trial
            for _, record in runs
            if isinstance(record.trial, Trial) and record.trial.key == trial.key and record.measurement.windows
        ),
        None,
    )
    if trial.measure_s is None or first is None or trial.profile or first.profile:
        return trial
    if trial.iterations:  # its ranks can't agree on a number
        return paced(trial, iterations=first.iterations, window=first.window)
    return trial.model_copy(update={"window": first.window})


def as_run(trial: Trial, events: Sequence[Event]) -> Trial:
    """A trial with the number of iterations that its program chose, or got to before it failed."""
    if trial.iterations or trial.profile:
        return trial
    told = next((event for event in events if isinstance(event, Pace)), None)
    return paced(trial, iterations=told.iterations if told else 1, window=told.window if told else 1)


def at_once(trials: Sequence[Trial]) -> Iterator[tuple[Trial, ...]]:
    """The trials in groups that run at the same time: most are alone."""
    numbered = enumerate(trials)

    def which(item: tuple[int, Trial]) -> tuple[int, int]:
        number, trial = item
        together = trial.concurrent is not None and trial.concurrent.case == "together"
        return (-1, trial.repeat) if together else (number, trial.repeat)

    for _, group in groupby(numbered, key=which):
        yield tuple(trial for _, trial in group)


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


def make_job(trial: Trial, resources: Resources, prepared: Prepared, *, run_id: str) -> Job:
    """A trial with the paths, user and port that it runs with; each job gets a port of its own."""
    describer = prepared.describer
    remote = resources.cluster.way == "hosts"
    store = None if remote else compiled.store_for(trial, engine=describer.name, software=resources.image.software)
    mounts = describer.mounts(prepared.data)
    if store:
        mounts += (compiled.mount(store, place=describer.place(store)),)
    nodes = {}
    for member in resources.cluster.members:
        ports = free_ports(PORTS) if resources.cluster.way == "here" else turned(member.node.ports, run_id)
        nodes[member.node.name] = member.node.model_copy(update={"ports": ports})
    return Job(
        run_id=run_id,
        trial=trial,
        seats=take_seats(trial, nodes, network="host" if resources.cluster.way == "hosts" else "emulated"),
        site=describer.site(prepared.data),
        image=prepared.image_used.reference,
        user=describer.user(),
        mounts=mounts,
        remote=remote,
        tools=prepared.tools,
        entrypoint=resources.image.entrypoint,
        compiled=describer.place(store) if store else None,
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
    if trial.concurrent:
        words.append(trial.concurrent.label)
    if trial.profile:
        words.append(f"profile-{trial.profile.kind}")
    return "-".join(words)
