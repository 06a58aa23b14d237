"""`dlscale bench --image IMG -- COMMAND ...`, from a request to a report: look, run every repeat, publish.

The command runs in one container under `lease.sh`, the shell's lease: an image that is not the suite's need not have Python, and one
that has may have any. It ends with the runner as every job does. An image without `/bin/sh` is refused by the engine when it starts.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.analysis.grading.grade import scaling
from runner.cluster.cleanup import remove_certain
from runner.cluster.machine import provenance
from runner.cluster.machine.cluster import inspect_local
from runner.core import dataset
from runner.core.console import open_console
from runner.core.container_spec import IMAGE_USER, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.interrupts import Stopped, held
from runner.core.provenance import SUITE_ROOT
from runner.core.record import EngineDetails, ImageUsed, RunPlan, RunRecord
from runner.core.request import Request
from runner.core.trial import ForeignTrial, title
from runner.engines import docker, podman
from runner.engines.docker import DockerEngine
from runner.engines.user import job_user
from runner.images.custom_image import look_up
from runner.plan.discovery import WORKLOADS, device_of, refuse_hidden
from runner.plan.external import Image, Place, container, plan, run_id
from runner.plan.launch import monitor
from runner.report.progress import Progress, progress
from runner.results import disk
from runner.results.disk import check_writable
from runner.results.find import records_under
from runner.results.store import RESERVE_BYTES, RunWriter, baseline_for
from runner.run.bench import exit_code, stamp
from runner.run.dialects import DIALECTS, auto
from runner.run.dialects.base import Facts, Reader
from runner.run.dialects.detection import AutoReader
from runner.run.execute import Limits, execute
from runner.run.external_grading import grade
from runner.run.monitors import monitoring
from runner.run.prepare import SamplersRoom, samplers_here
from runner.run.trial_runner import Run
from runner.run.watch import Watch

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True)
class _Ground:
    """What a request stands on."""

    request: Request
    engine: DockerEngine
    image: Image
    place: Place
    trials: tuple[ForeignTrial, ...]
    out: Path


def bench(request: Request, *, command: tuple[str, ...]) -> int:
    """Run a request to its report and return the exit code.

    Raises:
        RequestError: it can't be met; nothing was started.
        RunFailedError: a run could not be recorded.
    """
    resources = _look(request)
    check_writable(resources.out, room=RESERVE_BYTES)
    disk.remove_left(resources.out)
    name = stamp()
    baseline = _baseline(resources)
    runs: list[Run] = []
    with progress(open_console(stderr=True)) as shown:
        if said := remove_certain([resources.engine.client]):
            shown.stage(said)
        if resources.engine.podman:
            shown.stage(podman.note(resources.engine.podman))
        for trial in resources.trials:
            stopped = Stopped()
            with held(stopped):
                runs.append(
                    _run(resources, trial, shown, matrix=name, baseline=baseline, command=command, stopped=stopped)
                )
            if runs[-1][1].outcome.status != "ok":
                break
            if stopped.by:
                raise KeyboardInterrupt
    # pandas and matplotlib take a second to load: after the runs, not before them.
    from runner.report.publish import publish  # noqa: PLC0415

    shown_runs = [baseline, *runs] if baseline else runs
    publish(shown_runs, out=resources.out, name=name, console=open_console(soft_wrap=True))
    return exit_code([record for _, record in runs])


def dry_run(request: Request) -> int:
    """Print the command lines that `bench` would run, and start nothing."""
    resources = _look(request)
    for number, trial in enumerate(resources.trials, start=1):
        spec = container(trial, image=resources.image, place=resources.place, run_id=f"RUN{number}")
        sys.stdout.write(f"# {title(trial)}, repeat {trial.repeat}\n{resources.engine.command_line(spec)}\n")
        room = samplers_here(spec.node)
        for beside in _sampler(spec, room, hz=request.telemetry_hz):
            sys.stdout.write(f"# beside it on {spec.node}\n{room.describer.command_line(beside)}\n")
    return 0


def _look(request: Request) -> _Ground:
    """Look at the machine, the engine, the image and the data.

    Raises:
        RequestError: no engine answers, it does not have the image, the data can't be read, or there are too few devices.
    """
    if request.image is None:  # `refuse_mixture` was not asked
        raise RequestError("no image to run the command in; give --image IMG")
    data = _data(request.data) if request.data else None
    refuse_hidden(request.mounts)
    node = inspect_local()
    client = docker.connect_or_refuse()
    image = _image(client, request.image)
    engine = DockerEngine(client, WORKLOADS, beside=request.mounts)
    device = device_of(request, node)
    if device == "gpu":
        podman.refuse_gpus(engine.podman)
    place = Place(node=node, site=engine.site(data), mounts=engine.mounts(data), user=engine.user())
    return _Ground(
        request=request,
        engine=engine,
        image=image,
        place=place,
        trials=plan(request, image=image, node=node, device=device),
        out=request.out or SUITE_ROOT / "results" / node.name,
    )


def _data(asked: Path) -> Path:
    """The folder that the command sees, as the engine wants it named.

    Raises:
        RequestError: it is none, or the job's user can't read it.
    """
    if not asked.is_dir():
        raise RequestError(f"DATA={asked} is no folder; give the folder that the command finds at {docker.DATA}")
    if job_user() == IMAGE_USER:
        dataset.refuse_closed(asked)
    return asked.resolve()


def _image(client: DockerClient, reference: str) -> Image:
    """Look an image up.

    Raises:
        RequestError: the engine does not have it.
    """
    found = look_up(client, reference)
    return Image(
        used=ImageUsed(reference=found.reference, id=found.id, digest=found.digest, lock_sha256=found.lock_sha256),
        entrypoint=found.entrypoint,
    )


def _baseline(resources: _Ground) -> Run | None:
    """The very same command on one device, where such a run is on file; none is started, as commands name their devices themselves."""
    trial = resources.trials[0]
    return baseline_for(trial, list(records_under(resources.out))) if trial.world_size > 1 else None


def _reader(trial: ForeignTrial, name: str) -> Reader | None:
    """What reads the log of the container called `name`; None where the program writes events."""
    if trial.dialect == "events":
        return None
    facts = Facts(
        batch_per_device=trial.batch_per_device,
        devices=trial.world_size,
        warmup=trial.warmup,
        container=name,
        command=trial.command,
    )
    return auto(facts) if trial.dialect == "auto" else DIALECTS[trial.dialect](facts)


def _sampler(spec: ContainerSpec, room: SamplersRoom, *, hz: int) -> tuple[ContainerSpec, ...]:
    """What looks on while the command runs."""
    if not hz:
        return ()
    site, user = room.describer.site(None), room.describer.user()
    run = spec.labels[LABEL_RUN]
    return (monitor.sampler(run, node=spec.node, gpus=spec.gpus, hz=hz, image=room.image, site=site, user=user),)


def _run(
    resources: _Ground,
    trial: ForeignTrial,
    shown: Progress,
    *,
    matrix: str,
    baseline: Run | None,
    command: tuple[str, ...],
    stopped: Stopped,
) -> Run:
    """Run the command once and leave its record, whatever becomes of it."""
    name = run_id(trial, matrix=matrix)
    engine, request = resources.engine, resources.request
    spec = container(trial, image=resources.image, place=resources.place, run_id=name)
    room = samplers_here(spec.node)
    beside = _sampler(spec, room, hz=request.telemetry_hz)
    facts = provenance.collect(node=resources.place.node, command=command)
    writer = RunWriter(resources.out / name)
    planned = RunPlan(
        run_id=name,
        trial=trial,
        containers=(spec, *beside),
        command_lines=(engine.command_line(spec), *map(room.describer.command_line, beside)),
    )
    writer.create(planned)
    watch = Watch(shown, trial)
    reader = _reader(trial, spec.name)
    with monitoring(beside, engines=room.engines, writer=writer, watch=watch, idle_s=request.idle_s, stopped=stopped):
        outcome = execute(
            engines={spec.node: engine},
            specs=(spec,),
            writer=writer,
            limits=Limits.of(request),
            watch=watch,
            readers={spec.name: reader} if reader else None,
            stopped=stopped,
        )
    writer.settle(planned)
    if isinstance(reader, AutoReader) and reader.name:
        trial = trial.model_copy(update={"dialect": reader.name})
    graded = grade(
        trial=trial,
        outcome=outcome,
        events=watch.events,
        samples=writer.table("telemetry", report=shown.stage),
        monitors=planned.monitors,
    )
    record = RunRecord(
        run_id=name,
        matrix_id=matrix,
        trial=trial,
        engine=engine.name,
        engine_details=EngineDetails(version=engine.facts().version, reason=None),
        image=resources.image.used,
        outcome=graded.outcome,
        measurement=graded.measurement,
        scaling=scaling(trial, name, graded, baseline[1] if baseline else None),
        transport=graded.transport,
        provenance=facts.with_environment(watch.env) if watch.env else facts,
        validity=graded.validity,
        telemetry=graded.telemetry,
    )
    writer.finish(record)
    watch.ended(record)
    return writer.directory, record
