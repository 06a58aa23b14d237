"""Prepares what a plan needs before its first trial: the image or virtual environment, and the data in the framework's own format."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cluster.cleanup import remove_certain
from runner.cluster.hosts.by_command import check_shared
from runner.cluster.hosts.endpoint import base_image, engine_errors
from runner.cluster.hosts.supply import check_data, programs, python_modules, supply_image
from runner.core import dataset
from runner.core.cache import cache_dir, free_mib
from runner.core.container_spec import LABEL_RUN
from runner.core.dataset import PACKED, PACKED_FOR
from runner.core.errors import RequestError
from runner.core.record import EngineDetails, ImageUsed
from runner.core.request import CONFINED
from runner.core.trial import Dataset
from runner.engines import docker, volumes
from runner.engines.base import Describer, Engine, job_user
from runner.engines.boxes import Apptainer, Bare, Box, Podman, Pyxis
from runner.engines.command import CommandEngine
from runner.engines.docker import DockerEngine, DockerPlan
from runner.engines.environment import ensure_environment, environment_python
from runner.engines.local import LocalEngine
from runner.engines.ways import Here, Way
from runner.images.base import ensure_tools, tools_base
from runner.images.build import ensure
from runner.images.custom_image import CustomImage, HostSoftware
from runner.images.sif import ask_here, ensure_in_podman, ensure_sif, find_squashfs
from runner.images.spec import ImageSpec
from runner.plan.discovery import WORKLOADS, AnyResources, Resources
from runner.plan.launch.job import MODULES
from runner.plan.layout import Prepared, Samplers
from runner.report.progress import Progress
from runner.run.data import pack, packed_path

if TYPE_CHECKING:
    from runner.engines.docker import Client


def prepare(resources: AnyResources, shown: Progress, *, packed_at: int | None, run: str) -> Prepared:
    """Remove leftovers of killed runners from Docker, build or find the image or environment, and pack the data if the framework needs that.

    Raises RequestError if this machine or a host cannot provide something, RunFailedError if packing fails. `run` names and labels the
    volume of programs on hosts.
    """
    started = time.monotonic()
    if resources.engine.name == "docker":
        clients = [seen.docker.client for seen in resources.cluster.surveyed] or [docker.connect_or_refuse()]
        if removed := remove_certain(clients):
            shown.stage(removed)
    unpacked = _unpacked(resources) if packed_at else None
    if resources.cluster.remote:
        if unpacked:
            raise RequestError(
                f"DATA={unpacked.path} has to be packed for {resources.image.framework} first; run `dlscale data pack`, copy its output "
                "to the same path on every host, and give that path"
            )
        if resources.cluster.kind == "commands":
            return _on_command_nodes(resources, shown, started=started)
        return _on_hosts(resources, shown, started=started, run=run)
    engine, image, image_name = _local_engine(resources, shown)
    data, tools = resources.data, None
    if unpacked and packed_at:
        data = _pack(unpacked, resources, engine, image_name, shown, image_size=packed_at)
    if resources.cluster.kind == "emulated" and isinstance(engine, DockerEngine):
        tools = ensure_tools(engine.client, cache=cache_dir(), report=shown.stage)
    return Prepared(
        describer=engine,
        engines={member.node.name: engine for member in resources.cluster.members},
        engine_details=_details(resources, engine.facts().served_by),
        image_used=image,
        image_name=image_name,
        data=data,
        samplers=_samplers(Here(), {resources.node.name}),
        tools=tools,
        seconds=time.monotonic() - started,
    )


def preview(resources: AnyResources, *, packed_at: int | None) -> Prepared:
    """Return what `prepare` would, without building, installing or packing anything; for a dry run."""
    image, kind, data = resources.image, resources.cluster.kind, resources.data
    details, used = _details(resources, None), _identify(image)
    samplers = (
        _host_samplers({}, _volume("RUN"))
        if kind == "hosts"
        else _samplers(resources.cluster.way, {resources.node.name})
    )
    if packed_at and (unpacked := _unpacked(resources)):
        data = packed_path(unpacked, cache_dir(), framework=image.framework, image_size=packed_at)
    describer: Describer
    if kind == "hosts":
        describer = DockerPlan(_volume("RUN"))
    elif isinstance(image, HostSoftware):
        describer = LocalEngine(Path(image.python.path), WORKLOADS, name="host", version=image.python.version)
    elif isinstance(image, ImageSpec) and resources.engine.name != "docker":
        describer = CommandEngine(resources.cluster.way, _box(image, resources), version=None)
    else:
        describer = DockerEngine(docker.connect(), WORKLOADS, extra_mounts=image.mounts)
    return Prepared(
        describer=describer,
        engines={},
        engine_details=details,
        image_used=used,
        data=data,
        samplers=samplers,
        tools=tools_base().reference if kind == "emulated" else None,
        seconds=0.0,
    )


def pack_data(resources: Resources, shown: Progress, *, image_size: int) -> Path:
    """Pack the data into the framework's format, even if it also reads folders, and return its path."""
    if resources.dataset is None:
        raise RequestError("there is no data to pack; give a folder of class folders with JPEGs")
    engine, _, image_name = _local_engine(resources, shown)
    return _pack(resources.dataset, resources, engine, image_name, shown, image_size=image_size)


def _unpacked(resources: AnyResources) -> Dataset | None:
    """The data set, if it is a folder and the framework's own input pipeline cannot read folders."""
    form = PACKED_FOR.get(resources.image.framework)
    if not isinstance(resources, Resources) or not resources.dataset or not form or not form.needed:
        return None
    return None if Path(resources.dataset.path).suffix in PACKED else resources.dataset


def _samplers(way: Way, nodes: Iterable[str], *, last_output: dict[str, float] | None = None) -> Samplers:
    """Samplers in the runner's own Python, which nodes that are reached by a command line see too; `last_output` is shared with the job's engine."""
    engine = CommandEngine(way, Bare(Path(sys.executable), WORKLOADS), version=None, last_output=last_output)
    return Samplers(engine, dict.fromkeys(nodes, engine), image="the runner's own Python")


def _host_samplers(hosts: Mapping[str, Engine], volume: str) -> Samplers:
    return Samplers(DockerPlan(volume), hosts, image=base_image().reference)


def _volume(run: str) -> str:
    """The name of the volume that holds the programs on hosts."""
    return f"dlscale-{run}-workloads"


def _on_hosts(resources: AnyResources, shown: Progress, *, started: float, run: str) -> Prepared:
    """Build or find the image once, in this machine's engine or else the first host's; copy it and the programs to every host."""
    surveyed = resources.cluster.surveyed
    source, machine = resources.cluster.image_source()
    image = _ensure_image(resources, source, shown)
    nodes = [seen.docker for seen in surveyed]
    ids = supply_image(image.reference, source=source, machine=machine, nodes=nodes, report=shown.stage)
    volume, labels = _volume(run), {LABEL_RUN: run}
    engines: dict[str, Engine] = {}
    for seen in surveyed:
        with engine_errors(seen.docker):
            engines[seen.host.name] = DockerEngine(seen.docker.client, volume, gpu_request=seen.engine.gpu_request)
    prepared = Prepared(
        describer=DockerPlan(volume),
        engines=engines,
        engine_details=_details(resources, surveyed[0].engine.served_by),
        image_used=image,
        data=resources.data,
        samplers=_host_samplers(engines, volume),
        seconds=time.monotonic() - started,
        image_ids=ids,
        volume=volume,
    )
    try:
        for seen in surveyed:
            with engine_errors(seen.docker):
                volumes.fill(
                    seen.docker.client,
                    name=volume,
                    image=image.reference,
                    files={**programs(WORKLOADS), **python_modules(MODULES, "psutil", "pynvml")},
                    labels=labels,
                )
                if prepared.data:
                    check_data(seen.docker, prepared.data, image=image.reference, labels=labels)
    except BaseException:
        prepared.release()
        raise
    return prepared


def _on_command_nodes(resources: AnyResources, shown: Progress, *, started: float) -> Prepared:
    """Provide every node with the image or environment, and check that each sees the files it needs."""
    reaches = resources.cluster.reaches
    image = resources.image
    assert isinstance(image, ImageSpec)  # noqa: S101 - a request for any other image is refused
    used, image_name = _supply_image(image, resources, shown, [reach.command for reach in reaches])
    resources.out.mkdir(parents=True, exist_ok=True)
    files = [
        WORKLOADS,
        *([resources.data] if resources.data else []),
        *([Path(image_name)] if image_name.startswith("/") else []),
    ]
    check_shared(reaches, out=resources.out, files=files)
    engine = CommandEngine(resources.cluster.way, _box(image, resources), version=resources.engine.version)
    nodes = [reach.node for reach in reaches]
    return Prepared(
        describer=engine,
        engines=dict.fromkeys(nodes, engine),
        engine_details=_details(resources, engine.version),
        image_used=used,
        image_name=image_name,
        data=resources.data,
        samplers=_samplers(resources.cluster.way, nodes, last_output=engine.last_output),
        seconds=time.monotonic() - started,
    )


def _local_engine(resources: AnyResources, shown: Progress) -> tuple[Engine, ImageUsed, str]:
    """Return this machine's engine, the image or environment, built if need be, and the name by which the engine knows it."""
    image = resources.image
    if isinstance(image, HostSoftware):
        shown.stage(f"no container: {image.reference} runs unmodified")
        return (
            LocalEngine(Path(image.python.path), WORKLOADS, name="host", version=image.python.version),
            _identify(image),
            image.reference,
        )
    if isinstance(image, ImageSpec) and resources.engine.name != "docker":
        used, image_name = _supply_image(image, resources, shown, [ask_here])
        return CommandEngine(Here(), _box(image, resources), version=resources.engine.version), used, image_name
    client = docker.connect()
    used = _ensure_image(resources, client, shown)
    return DockerEngine(client, WORKLOADS, extra_mounts=image.mounts), used, used.reference


def _box(image: ImageSpec, resources: AnyResources) -> Box:
    """The box in which the engine runs jobs of one of the suite's images."""
    if not resources.engine.in_containers:
        return Bare(_environment(image), WORKLOADS)
    root = os.getuid() == 0
    match resources.engine.name:
        case "apptainer":
            return Apptainer(WORKLOADS, root=root)
        case "podman":
            return Podman(WORKLOADS, root=root, limits=resources.cluster.allocation is None)
        case _:
            return Pyxis(WORKLOADS)


def _environment(image: ImageSpec) -> Path:
    """The path of the Python in an image's virtual environment, which may not exist yet."""
    return environment_python(lock=image.lock_path, requires_python=image.requires_python, cache=cache_dir())


def _supply_image(
    image: ImageSpec, resources: AnyResources, shown: Progress, nodes: Sequence[Callable[[tuple[str, ...]], str]]
) -> tuple[ImageUsed, str]:
    """Provide an image in the form that a command-line engine needs; return its identity and the engine's name for it. `nodes` run a command on each."""
    used = _identify(image)
    match resources.engine.name:
        case "podman":
            ids = {ensure_in_podman(image, ask, report=shown.stage) for ask in nodes}
            if len(ids) > 1:
                raise RequestError(
                    f"the nodes have {len(ids)} different images named {image.reference}; run `podman rmi {image.reference}` on each"
                )
            return used.model_copy(update={"id": ids.pop()}), f"localhost/{image.reference}"
        case "pyxis":
            return used, str(find_squashfs(image))
        case "apptainer":
            path, sif = ensure_sif(image, report=shown.stage)
            dataset.refuse_private_folders([WORKLOADS, path.parent], user=job_user())
            return used.model_copy(update={"id": sif.id, "digest": f"sha256:{sif.sha256}"}), str(path)
        case _:
            reason = resources.engine.reason
            shown.stage(f"no container: {image.name} runs in a virtual environment of the suite's own ({reason})")
            _ensure_environment(image, shown)
            return used.model_copy(update={"reference": f"{image.name} (virtual environment)"}), image.reference


def _details(resources: AnyResources, version: str | None) -> EngineDetails:
    """The engine's details, for a record."""
    name = resources.engine.name
    return EngineDetails(version=version, reason=resources.engine.reason, confined=name in CONFINED)


def _ensure_image(resources: AnyResources, client: Client, shown: Progress) -> ImageUsed:
    """Build the image in an engine if needed; a custom image is used unmodified."""
    if not isinstance(resources.image, ImageSpec):
        return _identify(resources.image)
    built = ensure(resources.image, client=client, cache=cache_dir(), report=shown.stage)
    return ImageUsed(reference=built.reference, id=built.id, digest=built.digest, lock_sha256=built.lock_sha256)


def _identify(image: ImageSpec | CustomImage | HostSoftware) -> ImageUsed:
    """Identify an image without building it: a custom one by its id, the suite's by its lock; nothing identifies the machine's own software."""
    if isinstance(image, CustomImage):
        found = image.found
        return ImageUsed(reference=found.reference, id=found.id, digest=found.digest, lock_sha256=found.lock_sha256)
    lock = image.lock_sha256 if isinstance(image, ImageSpec) else None
    return ImageUsed(reference=image.reference, id=None, digest=None, lock_sha256=lock)


def _ensure_environment(image: ImageSpec, shown: Progress) -> None:
    """Create the virtual environment of an image if needed. Raises RequestError if the cache is too full."""
    cache, needed = cache_dir(), image.wheels_mib + image.size_mib
    if (free := free_mib(cache)) < needed and not _environment(image).exists():
        raise RequestError(
            f"{cache} has {free} MiB free, {image.name} needs {needed} MiB; free some or set DLSCALE_CACHE"
        )
    ensure_environment(
        lock=image.lock_path,
        requires_python=image.requires_python,
        cache=cache,
        report=shown.stage,
        extra_index=image.extra_index,
    )


def _pack(
    data: Dataset, resources: AnyResources, engine: Engine, image: str, shown: Progress, *, image_size: int
) -> Path:
    framework = resources.image.framework
    shown.stage(f"packing {data.images} images for {framework}")
    cpus = resources.node.cores
    return pack(data, framework, engine, image, image_size=image_size, cpus=cpus, say=shown.stage)
