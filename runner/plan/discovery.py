"""Finds what a request runs on: the machines, the engine, the image and the data. Inspects only; builds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runner.cluster.cluster import Cluster, assemble
from runner.cluster.machine.local_node import inspect_local
from runner.cluster.machine.provenance import programs_sha256
from runner.core import dataset
from runner.core.container_spec import IMAGE_USER
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunRecord
from runner.core.request import Device, Request
from runner.core.trial import Dataset
from runner.core.wire import Link
from runner.core.workload import Workload, choose_workload, load_workloads
from runner.engines import podman
from runner.engines.base import DATA, job_user
from runner.images.custom_image import AnyImage, CustomImage
from runner.plan.engine import EngineChoice, engine_of
from runner.plan.image import images_of
from runner.plan.profiling import Nsight, find_nsight

WORKLOADS: Final = SUITE_ROOT / "workloads"
# Links that COMPARE emulates on a machine with nothing else to compare: Fast Ethernet, Gigabit Ethernet, and unlimited.
RATES_MBIT: Final = (100.0, 1000.0, None)
EMULATED_NODES: Final = 2


@dataclass(frozen=True)
class Machines:
    """Resources that every request needs; `out` is the directory of the run directories."""

    cluster: Cluster
    device: Device
    engine: EngineChoice
    out: Path

    @property
    def node(self) -> Node:
        """The first node of the cluster."""
        return self.cluster.node


@dataclass(frozen=True)
class ExternalResources(Machines):
    """The resources of a user's command line."""

    image: CustomImage
    data: Path | None  # the folder that appears as `/dlscale/data`
    baseline: tuple[Path, RunRecord] | None = None  # the run that the request names; None for one of the same command


@dataclass(frozen=True)
class Resources(Machines):
    """The resources of one of the suite's programs."""

    image: AnyImage
    workload: Workload
    dataset: Dataset | None
    workloads_sha256: str
    others: tuple[AnyImage, ...] = ()  # further candidates, in order of preference, if the request names no framework
    nsight: Nsight = field(default_factory=Nsight)  # searched for only if a pass reads the GPU's counters

    @property
    def data(self) -> Path | None:
        """The path of the data set; None for synthetic data."""
        return Path(self.dataset.path) if self.dataset else None

    def check_engine(self) -> None:
        """Raise RequestError if the image needs a container and the engine has none, with the reason for that engine."""
        if self.image.needs_container and not self.engine.in_containers:
            why = f" ({self.engine.reason})" if self.engine.reason else ""
            raise RequestError(
                f"{self.image.needs_container}, and ENGINE={self.engine.name} has none{why}; start Docker and ask for ENGINE=docker"
            )


AnyResources = Resources | ExternalResources


def emulate_for_comparison(request: Request, inspect: Callable[[], Node] = inspect_local) -> Request:
    """Add emulated nodes to a comparison without hosts, on CPUs or a machine without two GPUs. Raises RequestError if that contradicts the rest."""
    if not request.compare or request.hosts or request.nodes or request.gpus or request.device == "gpu":
        return request
    if request.device is None and not request.workers and len(inspect().gpus) > 1:
        return request
    links = tuple(None if rate_mbit is None else Link(rate_mbit=rate_mbit, emulated=True) for rate_mbit in RATES_MBIT)
    workers = request.workers or (EMULATED_NODES,)
    emulated = request.model_copy(update={"nodes": EMULATED_NODES, "links": links, "workers": workers})
    refuse_contradictions(emulated)
    return emulated


def discover(request: Request, *, contact: bool = True, say: Callable[[str], None] = lambda _: None) -> AnyResources:
    """Find the machines, engine, image and data for one of the suite's programs or a user's command line.

    With `contact`, hosts are inspected; a dry run trusts the hosts file. Raises RequestError if a file of the suite is wrong, the image is
    unknown or does not fit the GPUs, DATA cannot be read, or the engine does not answer or gives no GPUs.
    """
    folders = [Path(mount.source) for mount in request.mounts]
    if request.command:
        if request.image is None:
            raise RequestError("no image to run the command in; give --image IMG")
        if request.data and not request.data.is_dir():
            raise RequestError(f"DATA={request.data} is not a folder; give the folder to show the command at {DATA}")
        folders += [request.data] if request.data else []
    dataset.refuse_private_folders(folders, user=job_user())
    cluster = assemble(request, contact=contact and not request.command, say=say)
    with ExitStack() as undo:
        undo.callback(cluster.close)
        device, engine = cluster.device_of(request), engine_of(request, cluster)
        if device == "gpu":
            podman.refuse_gpus(engine.podman)
        machines = Machines(cluster, device, engine, request.out or SUITE_ROOT / "results" / cluster.machine)
        images = images_of(request, device, cluster)
        found = _of_command(request, machines, images[0]) if request.command else _of_suite(request, machines, images)
        undo.pop_all()
    if engine.podman:
        say(podman.note(engine.podman))
    return found


def discover_own(request: Request, *, contact: bool = True) -> Resources:
    """Find the resources of one of the suite's programs; see `discover`."""
    found = discover(request, contact=contact)
    if not isinstance(found, Resources):
        raise TypeError("the request has a command of the user's")
    return found


def _of_suite(request: Request, machines: Machines, images: Sequence[AnyImage]) -> Resources:
    workload = choose_workload(load_workloads(SUITE_ROOT), request.model)
    image, *others = images
    data = None
    if request.data:
        if workload.data == "none":
            raise RequestError(
                f"DATA={request.data} asked, but {workload.name} generates its own samples; leave it out"
            )
        readable_by_others = read_by_others(
            in_containers=machines.engine.in_containers, on_hosts=machines.cluster.remote
        )
        data = dataset.inspect(request.data, workload.data, readable_by_others=readable_by_others)
    resources = Resources(
        **vars(machines),
        image=image,
        others=tuple(others),
        workload=workload,
        dataset=data,
        workloads_sha256=programs_sha256(WORKLOADS),
        nsight=find_nsight() if "metrics" in request.profile and machines.device == "gpu" else Nsight(),
    )
    resources.check_engine()
    return resources


def _of_command(request: Request, machines: Machines, image: AnyImage) -> ExternalResources:
    assert isinstance(image, CustomImage)  # noqa: S101 - a request that names an image has one
    return ExternalResources(**vars(machines), image=image, data=request.data.resolve() if request.data else None)


def read_by_others(*, in_containers: bool, on_hosts: bool) -> bool:
    """Whether jobs read the data as a different user than the runner: in containers on hosts, or in containers if the runner is root."""
    return in_containers and (on_hosts or job_user() == IMAGE_USER)
