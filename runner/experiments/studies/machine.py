"""Looks at what a study is to be run on: devices, nodes, engine, and which of the suite's images run there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from runner.cluster.cluster import Cluster, assemble
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.core.request import Request
from runner.core.strategies import STRATEGIES
from runner.engines import docker
from runner.engines.base import EngineError
from runner.experiments.studies.model import Machine, Usable
from runner.images.build import find_built
from runner.images.catalog import load_images, misfit
from runner.images.spec import ImageSpec
from runner.plan.discovery import EngineChoice, choose_engine
from runner.plan.strategy import offered
from runner.results.published.model import Identifier


def survey(
    request: Request, *, gpus: Mapping[Identifier, Sequence[str]], say: Callable[[str], None] = lambda _: None
) -> Machine:
    """Look at the machines: of the request `device`, `hosts` and `engine` count; `gpus` has the driver's names by the source's id of a GPU.

    A RequestError: the list of hosts is wrong, or an engine that was asked for does not answer or has no images.
    """
    if request.engine == "host":
        raise RequestError(
            "ENGINE=host has the versions that are installed here, and a study asks for those nearest its source's; ask for ENGINE=docker or "
            "venv, or leave it out"
        )
    with closing(assemble(request, contact=True, say=say)) as cluster:
        return _of(cluster, request, gpus)


def _of(cluster: Cluster, request: Request, gpus: Mapping[Identifier, Sequence[str]]) -> Machine:
    node, device = cluster.node, cluster.device_of(request)
    engine = EngineChoice("docker", None) if cluster.way == "hosts" else choose_engine(request.engine)
    name = node.gpus[0].name if device == "gpu" and node.gpus else node.cpu_model or "unnamed processor"
    return Machine(
        name=cluster.machine,
        device=device,
        device_name=name,
        devices=tuple(member.devices(device) for member in cluster.members),
        gpu=next((id_ for id_, names in gpus.items() if device == "gpu" and name in names), None),
        cores=len(node.cores),
        engine=engine.name,
        may_emulate=engine.in_containers,
        hosts=request.hosts,
        images=_images(cluster, engine),
    )


def _images(cluster: Cluster, engine: EngineChoice) -> tuple[Usable, ...]:
    """All plain images, with why those that can't run here can't."""
    return tuple(usable(image, misfit=_misfit(image, cluster, engine)) for image in load_images(SUITE_ROOT).images)


def usable(image: ImageSpec, *, misfit: str | None) -> Usable:
    """What a study has to know of an image."""
    return Usable(
        framework=image.framework,
        version=image.version,
        device=image.device,
        alone=offered(image) == ("single",),
        one_node=not any(STRATEGIES[name].several_nodes for name in offered(image)),
        misfit=misfit,
    )


def _misfit(image: ImageSpec, cluster: Cluster, engine: EngineChoice) -> str | None:
    if image.needs_container and not engine.in_containers:
        return f"{image.needs_container}, and no engine answers here"
    if image.container and not _built(image):
        return (
            f"{image.name} is a vendor's container that was not built here (`dlscale images build {image.framework}`)"
        )
    problems = (misfit(image, member.node.gpus, member.node.driver) for member in cluster.members)
    return next((problem for problem in problems if problem), None)


def _built(image: ImageSpec) -> bool:
    """Whether the engine of this machine has it; a study pulls no 14 GB that nobody asked for."""
    try:
        with closing(docker.connect()) as client:
            return find_built(image, client) is not None
    except EngineError:
        return False
