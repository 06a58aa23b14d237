"""Makes ready what a plan needs before its first trial: the image or environment, and the data in the framework's own format."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cluster.hosts.endpoint import engine_errors
from runner.cluster.hosts.supply import check_data, python_modules, supply_image, supply_programs
from runner.cluster.hosts.survey import base_image
from runner.core.cache import cache_dir, free_mib
from runner.core.container_spec import LABEL_RUN
from runner.core.dataset import PACKED
from runner.core.errors import RequestError
from runner.core.record import EngineDetails, ImageUsed
from runner.core.trial import Dataset
from runner.engines import docker, volumes
from runner.engines.base import Describer, Engine
from runner.engines.docker import DockerEngine, DockerPlan
from runner.engines.environment import ensure_environment, environment_python
from runner.engines.local import LocalEngine
from runner.images.base import ensure_tools, tools_base
from runner.images.build import ensure
from runner.images.custom_image import CustomImage
from runner.images.own import OwnSoftware
from runner.images.spec import ImageSpec
from runner.plan.discovery import WORKLOADS, AnyResources, Resources, image_source
from runner.plan.launch.monitor import MODULES
from runner.report.progress import Progress
from runner.run.pack import PACKERS, pack, packed_path

if TYPE_CHECKING:
    from runner.cluster.hosts.survey import Surveyed
    from runner.engines.docker import Client


@dataclass(frozen=True)
class SamplersRoom:
    """Where samplers run: a process of the runner's own Python on this machine, containers of the suite's base on others.

    Attributes:
        engines: by node; empty in a dry run of hosts.
        image: of the containers.
    """

    describer: Describer
    engines: Mapping[str, Engine]
    image: str


@dataclass(frozen=True)
class Prepared:
    """What every trial of a plan runs in.

    Attributes:
        describer: what launchers and dry runs ask.
        engines: by node, what starts its containers; empty in a dry run of hosts.
        data: what the program reads, None for synthetic data.
        samplers: where those run that look on.
        seconds: how long it took to make all this ready.
        image_ids: of the image in each host's own engine; empty where there is one engine.
        volume: what the programs are in on hosts; None where they are read from this machine.
        tools: image of emulated nodes; None where there are none.
    """

    describer: Describer
    engines: Mapping[str, Engine]
    engine_details: EngineDetails
    image_used: ImageUsed
    data: Path | None
    samplers: SamplersRoom
    seconds: float
    image_ids: Mapping[str, str] = field(default_factory=dict)
    volume: str | None = None
    tools: str | None = None

    def release(self) -> None:
        """Remove what was brought onto hosts for these runs; the image stays."""
        for engine in self.engines.values():
            if self.volume and isinstance(engine, DockerEngine):
                volumes.remove(engine.client, self.volume)


def prepare(resources: AnyResources, shown: Progress, *, packed_at: int | None, run: str) -> Prepared:
    """Build or find the image, or the environment where there is no container engine, and pack the data if the framework wants that.

    Args:
        resources: what the request stands on.
        shown: told of each step.
        packed_at: height and width in pixels of packed images; None where the program reads them as they are.
        run: names what is brought onto hosts, and labels it.

    Raises:
        RequestError: too little disk, an image that can't be built here, or a host that can't take it.
        RunFailedError: the data could not be packed.
    """
    started = time.monotonic()
    if resources.cluster.way == "hosts":
        return _on_hosts(resources, shown, started=started, run=run, packed_at=packed_at)
    engine, image = _engine(resources, shown)
    data = resources.data
    if packed_at and (dataset := _to_pack(resources)):
        data = _pack(resources, dataset, engine, image, shown, image_size=packed_at)
    return Prepared(
        describer=engine,
        engines={member.node.name: engine for member in resources.cluster.members},
        engine_details=EngineDetails(version=engine.facts().version, reason=resources.engine.reason),
        image_used=image,
        data=data,
        samplers=samplers_here(resources.node.name),
        tools=_tools(resources, engine, shown),
        seconds=time.monotonic() - started,
    )


def samplers_here(node: str) -> SamplersRoom:
    """Room for this machine's one sampler, under the name of the node that stands for it."""
    engine = LocalEngine(Path(sys.executable), WORKLOADS)
    return SamplersRoom(engine, {node: engine}, image="the runner's own Python")


def _samplers_on(hosts: Mapping[str, Engine], volume: str) -> SamplersRoom:
    return SamplersRoom(DockerPlan(volume), hosts, image=base_image().reference)


def _tools(resources: AnyResources, engine: Engine, shown: Progress) -> str | None:
    """Have ready what emulated nodes are made of."""
    if resources.cluster.way != "emulated" or not isinstance(engine, DockerEngine):
        return None
    return ensure_tools(engine.client, cache=cache_dir(), report=shown.stage)


def _on_hosts(resources: AnyResources, shown: Progress, *, started: float, run: str, packed_at: int | None) -> Prepared:
    """Build or find the image once, bring it and the programs onto every host.

    This machine's engine is where it is built; where there is none, the first host's.
    """
    if packed_at and (dataset := _to_pack(resources)):
        raise RequestError(
            f"DATA={dataset.path} has to be packed for {resources.image.framework} first; type `dlscale data pack`, put what it writes "
            "at the same path on every host, and give that"
        )
    connections = [seen.connection for seen in resources.cluster.surveyed]
    source = image_source(resources.cluster)
    image = _image(resources, source, shown)
    ids = supply_image(image.reference, source=source, nodes=connections, report=shown.stage)
    volume = f"dlscale-{run}-workloads"
    engines: dict[str, Engine] = {seen.host.name: _on_host(seen, volume) for seen in resources.cluster.surveyed}
    prepared = Prepared(
        describer=DockerPlan(volume),
        engines=engines,
        engine_details=EngineDetails(version=resources.cluster.surveyed[0].engine.version, reason=None),
        image_used=image,
        data=resources.data,
        samplers=_samplers_on(engines, volume),
        seconds=time.monotonic() - started,
        image_ids=ids,
        volume=volume,
    )
    try:
        for connection in connections:
            with engine_errors(connection):
                supply_programs(
                    connection.client,
                    WORKLOADS,
                    beside=python_modules(MODULES, "psutil", "pynvml"),
                    volume=volume,
                    image=image.reference,
                    labels={LABEL_RUN: run},
                )
                if prepared.data:
                    check_data(connection, prepared.data, image=image.reference, labels={LABEL_RUN: run})
    except BaseException:
        prepared.release()
        raise
    return prepared


def _on_host(seen: Surveyed, volume: str) -> DockerEngine:
    with engine_errors(seen.connection):
        return DockerEngine(seen.connection.client, volume, gpus_by=seen.engine.gpu_request)


def pack_data(resources: Resources, shown: Progress, *, image_size: int) -> Path:
    """Pack the data into the form that the framework reads, needed or not; returns where it is.

    Raises:
        RequestError: too little disk, or an image that can't be built here.
        RunFailedError: the data could not be packed.
    """
    if resources.dataset is None:
        raise RequestError("there is no data to pack; give a folder of class folders with JPEGs")
    engine, image = _engine(resources, shown)
    return _pack(resources, resources.dataset, engine, image, shown, image_size=image_size)


def _engine(resources: AnyResources, shown: Progress) -> tuple[Engine, ImageUsed]:
    image = resources.image
    if isinstance(image, OwnSoftware):
        shown.stage(f"no container: {image.reference} runs as it is")
        return _own(image), _as_found(image)
    if isinstance(image, ImageSpec) and not resources.engine.in_containers:
        return _venv(resources, image, shown)
    return _docker(resources, shown)


def _pack(
    resources: AnyResources, data: Dataset, engine: Engine, image: ImageUsed, shown: Progress, *, image_size: int
) -> Path:
    shown.stage(f"packing {data.images} images for {resources.image.framework}")
    return pack(
        data=data,
        framework=resources.image.framework,
        image_size=image_size,
        engine=engine,
        image=image.reference,
        cache=cache_dir(),
        cpus=resources.node.cores,
        say=shown.stage,
    )


def preview(resources: AnyResources, *, packed_at: int | None) -> Prepared:
    """What `prepare` will come to, without building, installing or packing anything; for a dry run."""
    describer: Describer
    volume = "dlscale-RUN-workloads"
    wanted = resources.image
    if resources.cluster.way == "hosts":
        describer = DockerPlan(volume)
    elif isinstance(wanted, OwnSoftware):
        describer = _own(wanted)
    elif isinstance(wanted, ImageSpec) and not resources.engine.in_containers:
        describer = LocalEngine(
            environment_python(lock=wanted.lock_path, requires_python=wanted.requires_python, cache=cache_dir()),
            WORKLOADS,
        )
    else:
        describer = DockerEngine(docker.connect(), WORKLOADS, beside=wanted.mounts)
    if isinstance(wanted, ImageSpec):
        image = ImageUsed(reference=wanted.reference, id=None, digest=None, lock_sha256=wanted.lock_sha256)
    else:
        image = _as_found(wanted)
    data = resources.data
    if packed_at and (dataset := _to_pack(resources)):
        data = packed_path(dataset, cache_dir(), framework=resources.image.framework, image_size=packed_at)
    details = EngineDetails(version=None, reason=resources.engine.reason)
    return Prepared(
        describer=describer,
        engines={},
        engine_details=details,
        image_used=image,
        data=data,
        samplers=_samplers_on({}, volume) if resources.cluster.way == "hosts" else samplers_here(resources.node.name),
        tools=tools_base().reference if resources.cluster.way == "emulated" else None,
        seconds=0.0,
    )


def _docker(resources: AnyResources, shown: Progress) -> tuple[Engine, ImageUsed]:
    client = docker.connect()
    image = _image(resources, client, shown)
    return DockerEngine(client, WORKLOADS, beside=resources.image.mounts), image


def _image(resources: AnyResources, client: Client, shown: Progress) -> ImageUsed:
    """Have the image in an engine; one that is given is taken as it is."""
    if not isinstance(resources.image, ImageSpec):
        return _as_found(resources.image)
    built = ensure(resources.image, client=client, cache=cache_dir(), report=shown.stage)
    return ImageUsed(reference=built.reference, id=built.id, digest=built.digest, lock_sha256=built.lock_sha256)


def _as_found(image: CustomImage | OwnSoftware) -> ImageUsed:
    """What is taken as it is; of the machine's own software nothing names every byte."""
    if isinstance(image, OwnSoftware):
        return ImageUsed(reference=image.reference, id=None, digest=None, lock_sha256=None)
    found = image.found
    return ImageUsed(reference=found.reference, id=found.id, digest=found.digest, lock_sha256=found.lock_sha256)


def _own(image: OwnSoftware) -> LocalEngine:
    return LocalEngine(Path(image.python.path), WORKLOADS, name="host", version=image.python.version)


def _venv(resources: AnyResources, image: ImageSpec, shown: Progress) -> tuple[Engine, ImageUsed]:
    cache = cache_dir()
    shown.stage(
        f"no container: {image.name} runs in a virtual environment of the suite's own ({resources.engine.reason})"
    )
    free = free_mib(cache)
    if (
        free < image.wheels_mib + image.size_mib
        and not environment_python(lock=image.lock_path, requires_python=image.requires_python, cache=cache).exists()
    ):
        raise RequestError(
            f"{cache} has {free} MiB free, {image.name} needs {image.wheels_mib + image.size_mib} MiB; free some or set DLSCALE_CACHE"
        )
    python = ensure_environment(
        lock=image.lock_path,
        requires_python=image.requires_python,
        cache=cache,
        report=shown.stage,
        extra_index=image.extra_index,
    )
    used = ImageUsed(
        reference=f"{image.name} (virtual environment)", id=None, digest=None, lock_sha256=image.lock_sha256
    )
    return LocalEngine(python, WORKLOADS), used


def _to_pack(resources: AnyResources) -> Dataset | None:
    """The data set if it is a folder and the framework's own input pipeline reads none."""
    packer = PACKERS.get(resources.image.framework)
    if not isinstance(resources, Resources) or not resources.dataset or not packer or not packer.needed:
        return None
    return None if Path(resources.dataset.path).suffix in PACKED else resources.dataset
