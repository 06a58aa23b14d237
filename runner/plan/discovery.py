"""What a request stands on: the machines, the image, the data, and the engine that will run it. Looks; builds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.cluster.cluster import Cluster, assemble
from runner.cluster.machine.provenance import programs_sha256
from runner.core import dataset
from runner.core.container_spec import IMAGE_USER, Mount
from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.provenance import SUITE_ROOT
from runner.core.request import BARE_ENGINES, Device, EngineName, Request
from runner.core.trial import Dataset
from runner.core.workload import Workload, choose_workload, load_workloads
from runner.engines import docker, podman
from runner.engines.base import EngineError
from runner.engines.user import job_user
from runner.images.catalog import Catalog, load_images, misfit
from runner.images.custom_image import AnyImage, CustomImage, look_up
from runner.images.own import OwnSoftware, own_software
from runner.images.spec import ImageSpec
from runner.plan.counting import Nsight
from runner.plan.launch import STRATEGIES
from runner.plan.nsight import find_nsight

if TYPE_CHECKING:
    from runner.engines.docker import Client

WORKLOADS: Final = SUITE_ROOT / "workloads"


@dataclass(frozen=True)
class EngineChoice:
    """The engine to use.

    Attributes:
        reason: why it when it is not the first choice.
        podman: Podman by its version where that answers in Docker's place.
    """

    name: EngineName
    reason: str | None
    podman: str | None = None

    @property
    def in_containers(self) -> bool:
        """Whether jobs run in containers."""
        return self.name not in BARE_ENGINES


@dataclass(frozen=True)
class _Machines:
    """What every request stands on.

    Attributes:
        cluster: the machines.
        out: directory of the run directories.
    """

    cluster: Cluster
    device: Device
    engine: EngineChoice
    out: Path

    @property
    def node(self) -> Node:
        """The first node: the only one, or the one where one-device trials run."""
        return self.cluster.members[0].node


@dataclass(frozen=True)
class ExternalResources(_Machines):
    """What a command line of the user's runs on.

    Attributes:
        data: the folder that it finds at `/dlscale/data`; None for none.
    """

    image: CustomImage
    data: Path | None

    @property
    def workload(self) -> None:
        """The program is not one of the suite's."""
        return


@dataclass(frozen=True)
class Resources(_Machines):
    """What a program of the suite's runs on.

    Attributes:
        workloads_sha256: digest of the training programs.
        nsight: what this machine has to read the GPU's counters with; looked for where a pass needs them.
    """

    image: AnyImage
    workload: Workload
    dataset: Dataset | None
    workloads_sha256: str
    nsight: Nsight = field(default_factory=Nsight)

    @property
    def data(self) -> Path | None:
        """Where the data set is; None for synthetic data."""
        return Path(self.dataset.path) if self.dataset else None

    def check_engine(self) -> None:
        """Refuse an image that runs in a container only where there is none.

        Raises:
            RequestError: with why that is.
        """
        if self.image.needs_container and not self.engine.in_containers:
            why = f" ({self.engine.reason})" if self.engine.reason else ""
            raise RequestError(
                f"{self.image.needs_container}, and ENGINE={self.engine.name} has none{why}; start Docker and ask for ENGINE=docker"
            )


AnyResources = Resources | ExternalResources


def discover_external(request: Request, *, say: Callable[[str], None] = lambda _: None) -> ExternalResources:
    """Look at the machine, the engine, the image and the data that a command line of the user's needs.

    Raises:
        RequestError: no engine answers, it does not have the image, or the data can't be read.
    """
    if request.image is None:  # `refuse_mixture` was not asked
        raise RequestError("no image to run the command in; give --image IMG")
    data = _folder(request.data) if request.data else None
    refuse_hidden(request.mounts)
    cluster = assemble(request, contact=False, say=say)
    device = device_of(request, cluster.members[0].node)
    with closing(docker.connect_or_refuse()) as client:
        found = look_up(client, request.image)
        engine = EngineChoice("docker", None, podman.behind(client))
    if device == "gpu":
        podman.refuse_gpus(engine.podman)
    if engine.podman:
        say(podman.note(engine.podman))
    return ExternalResources(
        cluster=cluster,
        device=device,
        engine=engine,
        out=request.out or SUITE_ROOT / "results" / cluster.machine,
        image=CustomImage(found=found, framework="", device=device, mounts=request.mounts),
        data=data,
    )


def _folder(path: Path) -> Path:
    """The folder that a command sees, as the engine wants it named.

    Raises:
        RequestError: it is none, or the job's user can't read it.
    """
    if not path.is_dir():
        raise RequestError(f"DATA={path} is no folder; give the folder that the command finds at {docker.DATA}")
    if job_user() == IMAGE_USER:
        dataset.refuse_closed(path)
    return path.resolve()


def discover(request: Request, *, contact: bool = True, say: Callable[[str], None] = lambda _: None) -> Resources:
    """Look at the machines, the catalog, the data and the engines that a request needs.

    Args:
        request: what was asked.
        contact: whether hosts are asked what they are; a dry run believes their list.
        say: told what is looked at.

    Raises:
        RequestError: a file of the suite is wrong, the image is unknown or does not fit the GPUs, DATA is no data set, or the
            engine does not answer.
    """
    cluster = assemble(request, contact=contact, say=say)
    with ExitStack() as undo:
        undo.callback(cluster.close)
        resources = _look(request, cluster)
        undo.pop_all()
    if resources.engine.podman:
        say(podman.note(resources.engine.podman))
    return resources


def _look(request: Request, cluster: Cluster) -> Resources:
    node = cluster.members[0].node
    device = device_of(request, node)
    engine = _engine(request, cluster)
    if device == "gpu":
        podman.refuse_gpus(engine.podman)
    workload = choose_workload(load_workloads(SUITE_ROOT), request.model)
    catalog = load_images(SUITE_ROOT)
    image: AnyImage
    if request.image:
        image = _custom_image(catalog, request, request.image, device=device, source=image_source(cluster))
    elif request.engine == "host":
        image = _own(catalog, request, device)
    else:
        image = _image(catalog, request, device, node)
        for member in cluster.members:
            catalog.check_fit(image, member.node.gpus, member.node.driver)
    by_others = read_by_others(in_containers=engine.in_containers, on_hosts=cluster.way == "hosts")
    resources = Resources(
        cluster=cluster,
        device=device,
        engine=engine,
        image=image,
        workload=workload,
        dataset=_dataset(request.data, workload, by_others=by_others) if request.data else None,
        workloads_sha256=programs_sha256(WORKLOADS),
        out=request.out or SUITE_ROOT / "results" / cluster.machine,
        nsight=find_nsight() if "metrics" in request.profile and device == "gpu" else Nsight(),
    )
    resources.check_engine()
    return resources


def _dataset(path: Path, workload: Workload, *, by_others: bool) -> Dataset:
    """Look at the data that a workload is to read.

    Raises:
        RequestError: it is not what the workload reads or not for the job to read, or the workload reads none.
    """
    if workload.data == "none":
        raise RequestError(f"DATA={path} asked, but {workload.name} draws its own samples; leave it out")
    return dataset.inspect(path, workload.data, by_others=by_others)


def _custom_image(catalog: Catalog, request: Request, reference: str, *, device: Device, source: Client) -> CustomImage:
    """The image that was given; the GPUs that it has code for, it shows when it runs.

    Raises:
        RequestError: the engine does not have it, the framework is none of the suite's, or a job can't see what is to be shown in it.
    """
    framework = catalog.of(request.framework or "")[0].framework
    refuse_hidden(request.mounts)
    return CustomImage(found=look_up(source, reference), framework=framework, device=device, mounts=request.mounts)


def _own(catalog: Catalog, request: Request, device: Device) -> OwnSoftware:
    """The machine's own framework; the GPUs that it has code for, it shows when it runs.

    Raises:
        RequestError: the framework is none of the suite's, or not installed.
    """
    framework = catalog.of(request.framework or "")[0].framework
    return own_software(framework, device=device, horovod=request.strategy == "horovod")


def _image(catalog: Catalog, request: Request, device: Device, node: Node) -> ImageSpec:
    """The image that was asked for; the smallest that runs here when none was.

    Raises:
        RequestError: unknown, or it can't run on the GPUs present.
    """
    if request.framework is None and request.version:
        raise RequestError(
            f"VERSION={request.version} without FRAMEWORK; say which framework's, for example FRAMEWORK=mxnet"
        )
    if request.framework:
        image = catalog.find(request.framework, request.version, device, gpus=node.gpus, driver=node.driver)
    else:
        fitting = [i for i in catalog.images if i.device == device and misfit(i, node.gpus, node.driver) is None]
        image = min(fitting, key=lambda i: i.size_mib) if fitting else catalog.smallest(device)
    # A framework that Horovod does not know is refused with the strategies that it has, when the plan is made.
    wanted = request.strategy == "horovod" and image.framework in STRATEGIES["horovod"].frameworks
    return catalog.with_horovod(image) if wanted else image


def _engine(request: Request, cluster: Cluster) -> EngineChoice:
    """Hosts have Docker or are none; nodes are emulated by it; this machine alone can do without."""
    if cluster.way == "hosts":
        return EngineChoice("docker", None)
    return choose_engine("docker" if cluster.way == "emulated" else request.engine)


def read_by_others(*, in_containers: bool, on_hosts: bool) -> bool:
    """Whether data are read by somebody else than who runs the suite: on hosts, and by jobs of root in containers."""
    return in_containers and (on_hosts or job_user() == IMAGE_USER)


def image_source(cluster: Cluster) -> Client:
    """The engine that images are taken from: this machine's, or where that has none the first host's.

    Raises:
        RequestError: no engine answers.
    """
    if not cluster.surveyed:
        return docker.connect_or_refuse()
    try:
        return docker.connect()
    except EngineError:
        return cluster.surveyed[0].connection.client


def refuse_hidden(mounts: Sequence[Mount]) -> None:
    """Refuse to show a job folders that it may not read.

    Raises:
        RequestError: with the command that opens one.
    """
    for mount in mounts:
        if job_user() == IMAGE_USER and Path(mount.source).is_dir():
            dataset.refuse_closed(Path(mount.source))


def device_of(request: Request, node: Node) -> Device:
    """CPU or GPU: what was asked, else GPUs where there are some."""
    if request.device:
        return request.device
    if request.workers:
        return "cpu"
    return "gpu" if request.gpus or node.gpus else "cpu"


def choose_engine(asked: EngineName | None) -> EngineChoice:
    """Docker where it answers, else the suite's own virtual environment, with the reason; the machine's own software never by itself.

    Raises:
        RequestError: Docker was asked for and does not answer.
    """
    if asked in BARE_ENGINES:
        return EngineChoice(asked, f"asked for with ENGINE={asked}")
    try:
        client = docker.connect()
    except EngineError as error:
        if asked == "docker":
            raise RequestError(
                f"ENGINE=docker asked, but {error}; start it (`dlscale doctor` says more) or ask for ENGINE=venv"
            ) from error
        return EngineChoice("venv", str(error))
    with closing(client):
        return EngineChoice("docker", None, podman.behind(client))
