"""Runs the trials of one request in sequence, or concurrently if requested, and writes a record of each.

In a study, or with --resume, a trial reuses a run on file that is the same (`RecordedRuns`): an interrupted study or matrix continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from runner.cluster.cluster import Cluster
from runner.cluster.machine import provenance
from runner.core.container_spec import ContainerSpec, Mount
from runner.core.events import Env, Event, FirstStep, Pace, Phase, ProfileStart, RunStart, RunStop, WarmupEnd, Window
from runner.core.interrupts import Stopped, stop_on_signal
from runner.core.record import ImageUsed, Outcome, RunPlan, RunRecord
from runner.core.request import Request
from runner.core.trial import AnyTrial, ExternalTrial, Placed, Trial, title, with_actual_length
from runner.engines.base import grant_write
from runner.plan.discovery import AnyResources, ExternalResources, Resources
from runner.plan.external import image_label
from runner.plan.layout import Launch, Prepared, lay_out
from runner.plan.profiling import limit_replay
from runner.report import ahead
from runner.report.progress import ConcurrentProgress, Progress
from runner.results.find import Run, records_under
from runner.results.store import RunWriter, baseline_for
from runner.run import container_group
from runner.run.dialects import DIALECTS, auto
from runner.run.dialects.base import AutoReader, Facts, FiguresReader, Reader
from runner.run.dialects.pattern import PatternReader
from runner.run.execute import Limits, execute
from runner.run.monitors import monitoring

# Frameworks whose import takes well over a second, during which GPUs are idle.
_SLOW_TO_IMPORT: Final = frozenset({"pytorch", "tensorflow"})

Reuse = Callable[[AnyTrial, ImageUsed], Run | None]
"""Finds a run on file of a trial in an image; that trial is then not run again."""


@dataclass(frozen=True)
class TrialRunner:
    """Runs the trials of one request; `name` is the prefix of every run id, and names the reports."""

    request: Request
    resources: AnyResources
    prepared: Prepared
    shown: Progress
    command: tuple[str, ...]
    name: str
    reuse: Reuse
    stopped: Stopped = field(default_factory=Stopped)

    def run_all(self, trials: Sequence[AnyTrial]) -> list[Run]:
        """Run the trials in order, each concurrent group at the same time. Once a run of a cell has failed, the rest of that cell is skipped.

        Raises KeyboardInterrupt if it was stopped too late for the record of the current run to say so.
        """
        scales = self.request.gpus or self.request.workers
        earlier = list(records_under(self.resources.out)) if scales and 1 not in scales else []
        runs: list[Run] = []
        if isinstance(self.resources, ExternalResources) and trials[0].world_size > 1:
            # A command that selects its devices itself is never run on one device, so its baseline comes from elsewhere.
            baseline = self.resources.baseline or baseline_for(trials[0], earlier)
            earlier, runs = [], [baseline] if baseline else []
        valid = [run for run in earlier if run[1].validity.status == "valid"]
        failed: set[str] = set()
        number = 1
        for planned in concurrent_groups(trials):
            group = tuple(with_replay_limited(one, runs) for one in planned)
            trial, position = group[0], number
            number += len(group)
            if failed & {cell(trial), cell(trial.measured)}:
                continue
            if all(found := [self.reuse(one, self.prepared.image_used) for one in group]):
                runs += [run for run in found if run]
                continue
            baseline = baseline_for(trial, valid) if len(group) == trial.world_size == 1 and not trial.profile else None
            if baseline:
                self.shown.stage(f"1-device baseline on file: {baseline[1].run_id}")
                runs += [] if baseline in runs else [baseline]
                continue
            self.shown.begin(position, len(trials))
            with stop_on_signal(self.stopped):
                done = self._run_group(group, [*earlier, *runs])
            runs += done
            failed |= {cell(record.trial) for _, record in done if record.outcome.status != "ok"}
            if any(record.outcome.status == "interrupted" for _, record in done):
                break
            cluster = self.resources.cluster
            if any(record.outcome.status != "ok" for _, record in done) and (
                cluster.ended(signalled=False) or cluster.node_unreachable()
            ):
                break
            if self.stopped.by:
                raise KeyboardInterrupt
        return runs

    def _run_group(self, trials: Sequence[AnyTrial], before: Sequence[Run]) -> list[Run]:
        """Run one trial, or several concurrently, each with its own containers and record; progress is shown for the first only."""
        if len(trials) == 1:
            (trial,) = trials
            baseline = baseline_for(trial, before)
            launch = self._launch(with_equal_windows(trial, before) if isinstance(trial, Trial) else trial)
            return [self._run(launch, self.shown, baseline[1] if baseline else None)]
        launches = [self._launch(trial) for trial in trials]
        with ThreadPoolExecutor(max_workers=len(launches)) as pool:
            futures = [
                pool.submit(self._run, one, self.shown if number == 0 else ConcurrentProgress(self.shown), None)
                for number, one in enumerate(launches)
            ]
            return [one.result() for one in futures]

    def _launch(self, trial: AnyTrial) -> Launch:
        run_id = run_name(self.name, trial)
        return lay_out(trial, self.resources, self.prepared, run_id=run_id, hz=self.request.telemetry_hz)

    def _run(self, launch: Launch, shown: Progress, baseline: RunRecord | None) -> Run:
        """Run one trial and write its record, whatever its outcome."""
        trial, run_id, job = launch.trial, launch.run_id, launch.job
        if job:
            make_writable(job.mounts, user=job.user)
        describer, cluster = self.prepared.describer, self.resources.cluster
        workload = self.resources.workload if isinstance(self.resources, Resources) else None
        placement = trial.placement if isinstance(trial, Trial) and trial.nodes > 1 else ()
        facts = provenance.collect(
            node=self.resources.node,
            command=self.command,
            host=cluster.host,
            nodes=cluster.used(placement, image_ids=self.prepared.image_ids),
        )
        writer = RunWriter(self.resources.out / run_id)
        planned = RunPlan(
            run_id=run_id,
            trial=trial,
            containers=(*launch.containers, *launch.samplers),
            command_lines=(
                *map(describer.command_line, launch.containers),
                *map(self.prepared.samplers.describer.command_line, launch.samplers),
            ),
        )
        writer.create(planned)
        pattern = None if isinstance(trial, Trial) else trial.pattern
        watch = Watch(shown, trial, unit=workload.unit if workload else pattern.unit if pattern else "samples")
        log_readers = readers(trial, launch.containers)
        with monitoring(
            launch.samplers,
            engines=self.prepared.samplers.engines,
            writer=writer,
            watch=watch,
            idle_s=self.request.idle_s,
            stopped=self.stopped,
            gpus_idle=isinstance(trial, Trial) and trial.framework in _SLOW_TO_IMPORT,
            counts_energy=job is None or any(seat.node.counts_energy for seat in job.seats),
        ):
            outcome = execute(
                engines=self.prepared.engines,
                specs=launch.containers,
                writer=writer,
                limits=Limits.of(self.request, trial),
                watch=watch,
                readers=log_readers,
                keys=container_group.make_keys(job, launch.containers) if job else None,
                remote=bool(job and job.remote),
                stopped=self.stopped,
            )
        writer.close_tables(planned)
        if job:
            outcome = outcome.model_copy(update={"phases_s": {"build": self.prepared.seconds, **outcome.phases_s}})
        outcome = with_cause(outcome, cluster, placement)
        # numpy takes a fifth of a second to load, so it is not loaded before the job runs (`report/ahead.py`).
        from runner.run.grading import RunFiles, record_of  # noqa: PLC0415

        trial = with_length(trial, watch.events) if isinstance(trial, Trial) else with_dialect(trial, log_readers)
        files = RunFiles(
            plan=planned.model_copy(update={"trial": trial}),
            outcome=outcome,
            events=watch.events,
            provenance=facts.with_environment(watch.env) if watch.env else facts,
            workload=workload,
            samples=writer.table("telemetry", report=shown.stage),
            kernels=writer.table("kernels", report=shown.stage) if trial.profile else None,
        )
        record = record_of(
            files,
            matrix_id=self.name,
            engine=describer.name,
            engine_details=self.prepared.engine_details,
            image=self.prepared.image_used,
            baseline=baseline,
        )
        writer.finish(record)
        watch.ended(record)
        return writer.directory, record


def with_cause(outcome: Outcome, cluster: Cluster, placement: Sequence[Placed]) -> Outcome:
    """Return the outcome; if the scheduler or the nodes know why the run did not succeed, their explanation comes before its reason."""
    if outcome.status == "ok":
        return outcome
    if ending := cluster.ended(signalled=outcome.status == "interrupted"):
        return outcome.model_copy(update={"status": ending.status, "reason": f"{ending.sentence}; {outcome.reason}"})
    named = outcome.status == "interrupted" or outcome.lost
    if not named and placement and (fault := cluster.connectivity_fault(placement)):
        return outcome.model_copy(update={"reason": f"{fault}; {outcome.reason}"})
    return outcome


def with_equal_windows(trial: Trial, runs: Sequence[Run]) -> Trial:
    """Give a trial that is measured for a time (`measure_s`) the window, in iterations, of the first run with its key, and the length if planned."""
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
    if trial.iterations:  # a planned length, because its ranks cannot agree on one
        return with_actual_length(trial, iterations=first.iterations, window=first.window)
    return trial.model_copy(update={"window": first.window})


def with_length(trial: Trial, events: Sequence[Event]) -> Trial:
    """Return the trial with the iterations and window that its program chose, or 1 of each if it failed before choosing."""
    if trial.iterations or trial.profile:
        return trial
    chosen = next((event for event in events if isinstance(event, Pace)), None)
    return with_actual_length(
        trial, iterations=chosen.iterations if chosen else 1, window=chosen.window if chosen else 1
    )


def with_dialect(trial: ExternalTrial, log_readers: Mapping[str, Reader]) -> ExternalTrial:
    """Return the trial with the dialect that was detected in its log, if any."""
    found = next(
        (reader.name for reader in log_readers.values() if isinstance(reader, AutoReader) and reader.name), None
    )
    return trial.model_copy(update={"dialect": found}) if found else trial


def concurrent_groups(trials: Sequence[AnyTrial]) -> Iterator[tuple[AnyTrial, ...]]:
    """Yield the trials in groups that run at the same time; most groups hold one trial."""
    numbered = enumerate(trials)

    def group_key(item: tuple[int, AnyTrial]) -> tuple[int, int]:
        number, trial = item
        together = trial.concurrent is not None and trial.concurrent.case == "together"
        return (-1, trial.repeat) if together else (number, trial.repeat)

    for _, group in groupby(numbered, key=group_key):
        yield tuple(trial for _, trial in group)


def with_replay_limited(trial: AnyTrial, before: Sequence[Run]) -> AnyTrial:
    """Have the sampler read a pass's counters if an earlier kernels pass of this training ran too many kernels for Nsight Compute."""
    if not isinstance(trial, Trial) or trial.profile is None:
        return trial
    passes = (record.profile for _, record in before if cell(record.trial.measured) == cell(trial.measured))
    kernels = [one.gpu_total.kernels_per_step for one in passes if one and one.kind == "kernels" and one.gpu_total]
    return limit_replay(trial, kernels[-1]) if kernels else trial


def readers(trial: AnyTrial, specs: Sequence[ContainerSpec]) -> dict[str, Reader]:
    """Map each container to the reader of its program's own log; empty for programs that write events, and for profiling passes."""
    if trial.dialect is None or trial.dialect == "events" or trial.profile:
        return {}
    found: dict[str, Reader] = {}
    for spec in specs:
        facts = Facts(
            batch_per_device=trial.batch_per_device,
            devices=trial.world_size,
            warmup=trial.warmup,
            container=spec.name,
            command=spec.argv if isinstance(trial, Trial) else trial.command,
        )
        if isinstance(trial, ExternalTrial) and trial.pattern:
            found[spec.name] = PatternReader(facts, trial.pattern)
            continue
        reader = auto(facts) if trial.dialect == "auto" else DIALECTS[trial.dialect](facts)
        found[spec.name] = FiguresReader(reader, iterations=trial.iterations) if isinstance(trial, Trial) else reader
    return found


def make_writable(mounts: Iterable[Mount], *, user: str) -> None:
    """Create the directories that a job may write to, accessible to its user only."""
    for one in mounts:
        if not one.read_only:
            store = Path(one.source)
            store.mkdir(mode=0o700, parents=True, exist_ok=True)
            grant_write(store, user)


def run_name(matrix: str, trial: AnyTrial) -> str:
    """The run id of a trial; its prefix is the name of the matrix."""
    what = f"{trial.framework}-{trial.model}" if isinstance(trial, Trial) else image_label(trial.label or trial.image)
    return f"{matrix}-{what}-{cell(trial)}-r{trial.repeat}"


def cell(trial: AnyTrial) -> str:
    """Name a trial within its matrix, without the repeat: `2cpu`, `16gpu-4nodes-ethernet-1gbit`, `2cpu-profile-memory`."""
    words = [f"{trial.world_size}{trial.device}"]
    if isinstance(trial, ExternalTrial):
        return words[0]
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


class RecordedRuns:
    """The usable runs in a folder, by trial. A trial reuses a run with the same settings and image; `_can_reuse` says what may differ."""

    def __init__(self, out: Path) -> None:
        self._runs: dict[str, list[Run]] = {}
        for run in records_under(out):
            self.add(run)

    def add(self, run: Run) -> None:
        """Remember a run, unless it failed or is invalid: those are run again."""
        _, record = run
        if record.outcome.status == "ok" and record.validity.status != "invalid":
            self._runs.setdefault(record.trial.key, []).append(run)

    def find(self, trial: AnyTrial, image: ImageUsed) -> Run | None:
        """The newest run of this trial in this image; None if there is none."""
        own = [run for run in self._runs.get(trial.key, []) if _can_reuse(run[1], trial, image)]
        return max(own, key=lambda run: run[1].run_id, default=None)


def _can_reuse(record: RunRecord, trial: AnyTrial, image: ImageUsed) -> bool:
    """Whether a trial can reuse a run, which may have chosen its own length, or have run on other nodes with equal devices and kinds of wire."""
    ran, used = record.trial, record.image
    if isinstance(ran, ExternalTrial):
        return ran == trial and used.id == image.id
    if not isinstance(ran, Trial) or not isinstance(trial, Trial):
        return False
    if not trial.iterations and not trial.profile:
        trial = with_actual_length(trial, iterations=ran.iterations, window=ran.window)
    ran_on = [(one.devices, one.wire and one.wire.kind) for one in ran.placement]
    return (
        ran.model_copy(update={"placement": trial.placement}) == trial
        and ran_on == [(one.devices, one.wire and one.wire.kind) for one in trial.placement]
        and (used.id, used.lock_sha256) == (image.id, image.lock_sha256)
    )


COMPILES: Final = "first step (compiles for minutes, unless an earlier run's work is cached)"


class Watch:
    """Receives every event of one trial, and shows its progress. `events` holds all of them, `env` the environment of rank 0."""

    def __init__(self, shown: Progress, trial: AnyTrial, *, unit: str = "samples") -> None:
        self.events: list[Event] = []
        self.env: Env | None = None
        self._shown = shown
        self._done = 0
        # Only an external program itself knows its length and its number of ranks.
        known = trial if isinstance(trial, Trial) else None
        self._ranks = known.processes if known else 1
        self._compiles = known is not None and "compile" in known.techniques
        self._concurrent = bool(known and known.concurrent and known.concurrent.case == "together")
        self._unit = unit
        iterations = (known.iterations or None) if known and not known.profile else None
        shown.trial_started(f"{title(trial)}, repeat {trial.repeat}", iterations)
        shown.phase("start")

    def __call__(self, event: Event) -> None:
        """Keep the event; show those of rank 0."""
        self.events.append(event)
        if event.rank != 0:
            return
        if isinstance(event, Env):
            self.env = event
        # Load no modules while a concurrent training is still being measured.
        if _is_idle_from(event) and not self._concurrent:
            ahead.load()
        self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case Phase(name="import"):
                self._shown.phase("create model")
            case RunStart():
                self._shown.phase("first step" if not self._compiles else COMPILES)
            case FirstStep():
                self._shown.phase("warm-up")
            case Pace(iterations=iterations):
                self._shown.expect(iterations)
            case WarmupEnd():
                self._shown.phase("measuring")
            case ProfileStart():
                self._shown.phase(f"under {event.source}")
            case Window():
                self._done += event.iterations
                self._shown.window(
                    self._done,
                    (event.samples if event.units is None else event.units) * self._ranks / event.seconds,
                    f"{self._unit}/s",
                )
            case _:
                pass

    def ended(self, record: RunRecord) -> None:
        """Print one line about the run."""
        throughput = record.measurement.throughput
        status = record.validity.status
        if record.profile and status != "invalid":
            self._shown.trial_ended(f"profiled by {record.profile.source} ({status})")
        elif status == "invalid" or throughput is None:
            self._shown.trial_ended(f"invalid, {'; '.join(record.validity.reasons)}")
        else:
            self._shown.trial_ended(f"{throughput.value:.1f} {throughput.unit} ({status})")
        if record.cut:
            self._shown.stage(record.cut)


def _is_idle_from(event: Event) -> bool:
    """Whether nothing is measured for a second: training has ended, or a GPU's first step is seconds away. CPUs start immediately."""
    return isinstance(event, RunStop) or (isinstance(event, Env) and event.device == "gpu")
