"""`dlscale reproduce` and `dlscale studies`: survey the machine, plan the cells, run them, judge, write.

A survey finds devices, nodes, the engine, and which of the suite's images run there. Runs on file are reused unmodified, so that a stopped
study resumes.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from runner.cluster.cluster import Cluster, assemble
from runner.core.console import no_console, open_console
from runner.core.dataset import inspect
from runner.core.errors import DlscaleError, RequestError
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunRecord
from runner.core.request import BARE_ENGINES, Request
from runner.core.strategies import STRATEGIES
from runner.engines import docker
from runner.engines.base import EngineError
from runner.engines.process import become, read_git
from runner.experiments.studies import tables
from runner.experiments.studies.cells import cells, requests
from runner.experiments.studies.model import Cell, CellRun, Machine, Reproduction, StudyRequest, Usable
from runner.experiments.studies.reproduction import SUFFIX, judge, reproductions, write
from runner.experiments.studies.sample import sample_for
from runner.experiments.studies.study import Block, Study, load_study, study_names
from runner.images.build import find_built
from runner.images.catalog import load_images, misfit
from runner.images.custom_image import AnyImage
from runner.images.spec import ImageSpec
from runner.plan import slurm
from runner.plan.discovery import read_by_others
from runner.plan.engine import EngineChoice, engine_of
from runner.plan.image import images_of
from runner.plan.strategy import offered
from runner.report.progress import Progress, progress
from runner.results.disk import check_writable
from runner.results.published.model import Identifier
from runner.run import bench
from runner.run.trial_runner import RecordedRuns


def reproduce(options: StudyRequest, *, command: tuple[str, ...]) -> int:
    """Run the cells of a study that this hardware can run, judge the source by them, and return the exit code.

    Raises RequestError if there is no such study, if DATA is no data set, or if none of its cells can run here.
    """
    console, request = open_console(), options.bench
    study, source = load_study(options.study or "")
    check_program(study, request)
    if request.cluster:
        widest = max(point.nodes for block in _blocks(study, options.cells) for point in block.points)
        wanted = slurm.salloc(request.model_copy(update={"nodes": widest}), command)
        if not options.dry_run:
            become(wanted)
        sys.stdout.write(f"{shlex.join(wanted)}\n")
        return 0
    with progress(open_console(stderr=True)) as shown:
        machine = survey(request, gpus=study.same.gpus, say=shown.stage)
    if request.data and not request.command:
        containers = machine.engine not in BARE_ENGINES
        inspect(
            request.data,
            readable_by_others=read_by_others(in_containers=containers, on_hosts=machine.hosts is not None),
        )
        request = request.model_copy(update={"data": request.data.resolve()})
    found = cells(
        study,
        source=source,
        machine=machine,
        scale=options.scale,
        user_request=request,
    )
    found = _selected(found, options)
    nothing = not requests(found)
    tables.print_plan(console, study, found, machine=machine, scale=options.scale, whole=options.dry_run or nothing)
    if nothing:
        raise RequestError(f"no cell of STUDY={study.id} can run on {machine.name}; the reasons are above")
    if options.dry_run:
        return 0
    out = request.out or SUITE_ROOT / "results" / machine.name
    check_writable(out)
    with progress(open_console(stderr=True)) as shown:
        ran, stopped = _run(found, options, out=out, command=command, shown=shown)
    reproduction = judge(
        study,
        published=source,
        runs=ran,
        machine=machine,
        scale=options.scale,
        made_at=datetime.now(timezone.utc),
        git=read_git(SUITE_ROOT).commit,
    )
    path = out / f"{bench.stamp(reproduction.made_at)}-{study.id}{SUFFIX}"
    text = write(path, reproduction)
    tables.print_reproduction(console, reproduction, whole=text)
    console.print(f"written: {path}", style="dim", soft_wrap=True)
    if stopped:
        console.print(f"stopped; to continue, type the same command: {shlex.join(command)}", style="yellow")
    return 3 if stopped or any(cell.status in ("failed", "open") for cell in reproduction.cells) else 0


def check_program(study: Study, request: Request) -> None:
    """Refuse a program that no block of a study names. Raises RequestError, which lists the known ones."""
    if not request.command or any(block.program and block.program.is_at(request.command[0]) for block in study.blocks):
        return
    known = dict.fromkeys(block.program.file for block in study.blocks if block.program)
    names = f"its programs: {', '.join(known)}" if known else "the study names no program"
    raise RequestError(f"PROGRAM={request.command[0]} is not a program of STUDY={study.id}; {names}")


def _blocks(study: Study, names: Sequence[str]) -> list[Block]:
    """Return the blocks that CELLS may refer to. Raises RequestError if a name matches none."""
    for name in names:
        if not any(_may_match(name, block) for block in study.blocks):
            raise _no_such_cell(name, study.id, (block.id for block in study.blocks))
    return [block for block in study.blocks if not names or any(_may_match(name, block) for name in names)]


def _may_match(name: str, block: Block) -> bool:
    return name.startswith(block.id) or block.id.startswith(name)


def _no_such_cell(name: str, study: str | None, blocks: Iterable[str]) -> RequestError:
    return RequestError(
        f"CELLS={name}: no cell of STUDY={study} has this prefix; its blocks: {', '.join(dict.fromkeys(blocks))}"
    )


def _selected(found: Sequence[Cell], options: StudyRequest) -> tuple[Cell, ...]:
    for name in options.cells:
        if not any(cell.id.startswith(name) for cell in found):
            raise _no_such_cell(name, options.study, (cell.block for cell in found))
    return tuple(cell for cell in found if not options.cells or cell.id.startswith(options.cells))


def _run(
    found: Sequence[Cell], options: StudyRequest, *, out: Path, command: tuple[str, ...], shown: Progress
) -> tuple[list[CellRun], bool]:
    """Run every request once; return the cells with their runs, and whether the study was stopped, e.g. by Ctrl-C, which keeps finished runs.

    A failed request does not end the study.
    """
    recorded, todo = RecordedRuns(out), requests(found)
    ran = {cell.id: CellRun(cell=cell, why=cell.why) for cell in found}
    for number, request in enumerate(todo, start=1):
        own = [cell for cell in found if cell.request == request]
        shown.stage(f"{shown.begin(number, len(todo), 'cell')}: {', '.join(cell.id for cell in own)}")
        try:
            size, device = request.image_size, request.device
            if size and device and request.data == (sample := sample_for(options.scale, size, device)).path:
                sample.ensure(report=shown.stage)
            runs = bench.run(
                request.model_copy(update={"out": out}),
                command=command,
                name=bench.stamp(),
                shown=shown,
                reuse=recorded.find,
                select=lambda trial, own=own: any(cell.pick and cell.pick.wants(trial) for cell in own),  # type: ignore[misc]
            )
        except KeyboardInterrupt:
            return list(ran.values()), True
        except RequestError as error:
            # Nothing was started, e.g. because the machine lacks a wire or the framework a network.
            unable = {"request": None, "pick": None}
            ran |= {cell.id: CellRun(cell=cell.model_copy(update=unable), why=str(error)) for cell in own}
            shown.stage(f"skipped: {error}")
            continue
        except DlscaleError as error:
            ran |= {cell.id: CellRun(cell=cell, why=str(error)) for cell in own}
            shown.stage(f"failed: {error}")
            continue
        for run in runs:
            recorded.add(run)
        records = [record for _, record in runs]
        ran |= {cell.id: _cell_run(cell, records) for cell in own}
        if any(record.outcome.status == "interrupted" for record in records):
            return list(ran.values()), True
    return list(ran.values()), False


def _cell_run(cell: Cell, records: Sequence[RunRecord]) -> CellRun:
    """Assign to a cell its own runs among those of its request."""
    own = tuple(record for record in records if cell.pick and cell.pick.takes(record.trial))
    failed = (one.outcome.reason for one in own if one.outcome.status != "ok" and one.outcome.reason)
    return CellRun(cell=cell, runs=own, why=next(failed, None))


def list_studies(options: StudyRequest, *, words: Sequence[str] = (), as_json: bool) -> None:
    """Print every study, as text or JSON: how many of its cells can run here, by which command, and its latest results.

    `words` are the options that were typed; the printed command repeats them.
    """
    console = no_console() if as_json else open_console()
    facts = []
    on_file = list(reproductions(SUITE_ROOT / "results"))
    command = shlex.join(("dlscale", "reproduce", "STUDY", *words))
    for number, name in enumerate(study_names()):
        study, source = load_study(name)
        machine = survey(options.bench, gpus=study.same.gpus)
        own = cells(study, source=source, machine=machine, scale=options.scale, user_request=options.bench)
        if not number:
            console.print(f"{tables.place(machine, options.scale)}\n")
        last = max(
            (one for one in on_file if one.study == name),
            key=lambda one: ((one.machine.name, one.machine.device) == (machine.name, machine.device), one.made_at),
            default=None,
        )
        typed = command.replace("STUDY", name)
        facts.append(_listing(study, own, last=last, command=typed))
        tables.print_study(console, study, own, last=last, command=typed)
    if as_json:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")


def _listing(study: Study, own: Sequence[Cell], *, last: Reproduction | None, command: str) -> dict[str, object]:
    """Return the listing of a study, for programs."""
    here, smaller = tables.runnable(own)
    return {
        "study": study.id,
        "title": study.title,
        "runs": sum(not cell.extra for cell in own),
        "runs_here": here,
        "smaller_runs_here": smaller,
        "command": command if here or smaller else None,
        "last": last
        and {
            "made_at": last.made_at.isoformat(),
            "machine": last.machine.name,
            "scale": last.scale,
            "findings": Counter(one.verdict for one in last.judgements),
            "figures": Counter(one.verdict for one in last.comparisons),
        },
    }


def survey(
    request: Request, *, gpus: Mapping[Identifier, Sequence[str]], say: Callable[[str], None] = lambda _: None
) -> Machine:
    """Inspect the requested machines, and which software can run there; `gpus` has the driver's names by the source's id of a GPU.

    Raises RequestError if the list of hosts is wrong, or if a requested engine, image or framework is not available.
    """
    with closing(assemble(request, contact=True, say=say)) as cluster:
        return _machine_of(cluster, request, gpus)


def _machine_of(cluster: Cluster, request: Request, gpus: Mapping[Identifier, Sequence[str]]) -> Machine:
    node, device = cluster.node, cluster.device_of(request)
    engine = engine_of(request, cluster)
    name = node.gpus[0].name if device == "gpu" and node.gpus else node.cpu_model or "unnamed processor"
    return Machine(
        name=cluster.machine,
        device=device,
        device_name=name,
        devices=tuple(member.devices(device) for member in cluster.members),
        gpu=next((id_ for id_, names in gpus.items() if device == "gpu" and name in names), None),
        cores=len(node.cores),
        engine=engine.name,
        may_emulate=engine.name == "docker",
        hosts=request.hosts,
        images=_usable_images(request, cluster, engine),
    )


def _usable_images(request: Request, cluster: Cluster, engine: EngineChoice) -> tuple[Usable, ...]:
    if request.image or request.engine == "host":
        devices = dict.fromkeys(("cpu", cluster.device_of(request)))
        return tuple(usable(image, misfit=None) for device in devices for image in images_of(request, device, cluster))
    return tuple(usable(image, misfit=_misfit(image, cluster, engine)) for image in load_images(SUITE_ROOT).images)


def usable(image: AnyImage, *, misfit: str | None) -> Usable:
    """Return what a study has to know of an image, or of the software installed on a machine."""
    return Usable(
        framework=image.framework,
        version=image.version,
        device=image.device,
        alone=offered(image) == ("single",),
        one_node=not any(STRATEGIES[name].several_nodes for name in offered(image)),
        given=not isinstance(image, ImageSpec),
        misfit=misfit,
    )


def _misfit(image: ImageSpec, cluster: Cluster, engine: EngineChoice) -> str | None:
    if image.needs_container and not engine.in_containers:
        return f"{image.needs_container}, and no engine answers here"
    if image.container and not _is_built(image):
        return (
            f"{image.name} is a vendor's container that was not built here (`dlscale images build {image.framework}`)"
        )
    problems = (misfit(image, member.node.gpus, member.node.driver) for member in cluster.members)
    return next((problem for problem in problems if problem), None)


def _is_built(image: ImageSpec) -> bool:
    """Whether the local engine has the image; a study never pulls 14 GB unasked."""
    try:
        with closing(docker.connect()) as client:
            return find_built(image, client) is not None
    except EngineError:
        return False
