"""What a request runs on: the machines, the image, the data, and the engine that will run it. Looks; builds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.cluster.cluster import Cluster, assemble
from runner.cluster.machine.local_node import inspect_local
from runner.cluster.machine.provenance import programs_sha256
from runner.core import dataset
from runner.core.container_spec import IMAGE_USER
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError, unknown
from runner.core.node import Node
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunRecord
from runner.core.request import BARE_ENGINES, Device, EngineName, Request
from runner.core.strategies import STRATEGIES
from runner.core.trial import Dataset
from runner.core.wire import Link
from runner.core.workload import SEQUENCE, Workload, choose_workload, load_workloads
from runner.engines import base, docker, podman, process
from runner.engines.base import EngineError, job_user
from runner.images.catalog import load_images
from runner.images.custom_image import AnyImage, CustomImage, find_host_software, look_up
from runner.images.spec import ImageSpec
from runner.plan.profiling import Nsight, find_nsight
from runner.results.store import read_record

if TYPE_CHECKING:
    from runner.cluster.slurm.steps import StepReach

WORKLOADS: Final = SUITE_ROOT / "workloads"
# What COMPARE emulates on a machine with nothing else to compare: Fast Ethernet, Gigabit Ethernet, and what the machine itself can do.
RATES_MBIT: Final = (100.0, 1000.0, None)
EMULATED_NODES: Final = 2
PREFERRED: Final = ("pytorch", "tensorflow", "mxnet", "caffe")
"""Frameworks in the order in which they are tried where none is asked for: the one with most users first."""


@dataclass(frozen=True)
class EngineChoice:
    """The engine to use, and where it is not the first choice the reason."""

    name: EngineName
    reason: str | None
    podman: str | None = None  # its version where it answers in Docker's place
    version: str | None = None  # of an engine that is a program

    @property
    def in_containers(self) -> bool:
        """Whether jobs run in containers."""
        return self.name not in BARE_ENGINES


@dataclass(frozen=True)
class _Machines:
    """What every request runs on; `out` is the directory of the run directories."""

    cluster: Cluster
    device: Device
    engine: EngineChoice
    out: Path

    @property
    def node(self) -> Node:
        """The first node of the cluster."""
        return self.cluster.node


@dataclass(frozen=True)
class ExternalResources(_Machines):
    """What a command line of the user's runs on."""

    image: CustomImage
    data: Path | None  # the folder that it finds at `/dlscale/data`
    baseline: tuple[Path, RunRecord] | None = None  # None for one of the same command


@dataclass(frozen=True)
class Resources(_Machines):
    """What a program of the suite's runs on."""

    image: AnyImage
    workload: Workload
    dataset: Dataset | None
    workloads_sha256: str
    nsight: Nsight = field(default_factory=Nsight)  # looked for where a pass reads the GPU's counters

    @property
    def data(self) -> Path | None:
        """Where the data set is; None for synthetic data."""
        return Path(self.dataset.path) if self.dataset else None

    def check_engine(self) -> None:
        """Refuse an image that runs in a container only where there is none. RequestError: with why that is."""
        if self.image.needs_container and not self.engine.in_containers:
            why = f" ({self.engine.reason})" if self.engine.reason else ""
            raise RequestError(
                f"{self.image.needs_container}, and ENGINE={self.engine.name} has none{why}; start Docker and ask for ENGINE=docker"
            )


AnyResources = Resources | ExternalResources


def emulate_for_comparison(request: Request, inspect: Callable[[], Node] = inspect_local) -> Request:
    """Ask for emulated nodes where a comparison names no hosts and the machine has no two GPUs. RequestError: that contradicts the rest."""
    if not request.compare or request.hosts or request.nodes or request.gpus or request.device == "gpu":
        return request
    if request.device is None and not request.workers and len(inspect().gpus) > 1:
        return request
    links = tuple(None if rate_mbit is None else Link(rate_mbit=rate_mbit, emulated=True) for rate_mbit in RATES_MBIT)
    workers = request.workers or (EMULATED_NODES,)
    emulated = request.model_copy(update={"nodes": EMULATED_NODES, "links": links, "workers": workers})
    refuse_contradictions(emulated)
    return emulated


def named_baseline(run: Path, *, out: Path, device: Device) -> tuple[Path, RunRecord]:
    """The run that another command's are held against. RequestError: not on one device, or where a regrade of those would not find it."""
    record = read_record(run)
    trial = record.trial
    if trial.world_size != 1 or trial.device != device or record.validity.status == "invalid":
        what = f"{record.validity.status} on {trial.world_size} {trial.device}"
        raise RequestError(f"--baseline {run} is {what}; name a run on one {device} that is not invalid")
    if run.resolve().parent != out.resolve():
        raise RequestError(
            f"--baseline {run} does not lie in {out}, beside the run's own record; give --out {run.parent}"
        )
    return run, record


def discover(request: Request, *, contact: bool = True, say: Callable[[str], None] = lambda _: None) -> AnyResources:
    """Look at what a request needs, of a program of the suite's or of a command line of the user's; the arguments are those of `discover_own`."""
    if request.command:
        return _discover_external(request, say=say)
    return discover_own(request, contact=contact, say=say)


def _discover_external(request: Request, *, say: Callable[[str], None]) -> ExternalResources:
    """Look at what a command line of the user's needs. RequestError: no engine answers, it does not have the image, or data can't be read."""
    if request.image is None:
        raise RequestError("no image to run the command in; give --image IMG")
    if request.data and not request.data.is_dir():
        raise RequestError(f"DATA={request.data} is no folder; give the folder that the command finds at {base.DATA}")
    shown = [request.data] if request.data else []
    refuse_closed_folders([*shown, *(Path(mount.source) for mount in request.mounts)])
    cluster = assemble(request, contact=False, say=say)
    device = cluster.device_of(request)
    with closing(docker.connect_or_refuse()) as client:
        found = look_up(client, request.image)
        engine = EngineChoice("docker", None, podman.behind(client))
    if device == "gpu":
        podman.refuse_gpus(engine.podman)
    if engine.podman:
        say(podman.note(engine.podman))
    out = request.out or SUITE_ROOT / "results" / cluster.machine
    return ExternalResources(
        cluster=cluster,
        device=device,
        engine=engine,
        out=out,
        image=CustomImage(found=found, framework="", device=device, mounts=request.mounts),
        data=request.data.resolve() if request.data else None,
        baseline=named_baseline(request.baseline, out=out, device=device) if request.baseline else None,
    )


def discover_own(request: Request, *, contact: bool = True, say: Callable[[str], None] = lambda _: None) -> Resources:
    """Look at the machines, the catalog, the data and the engines that a program of the suite's needs.

    With `contact` hosts are asked what they are; a dry run believes their list. RequestError: a file of the suite is wrong, the image is
    unknown or does not fit the GPUs, DATA is no data set, or the engine does not answer.
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
    device = cluster.device_of(request)
    engine = engine_of(request, cluster)
    if device == "gpu":
        podman.refuse_gpus(engine.podman)
    workload = choose_workload(load_workloads(SUITE_ROOT), request.model)
    image = _image(request, cluster, device)
    data = None
    if request.data:
        if workload.data == "none":
            raise RequestError(f"DATA={request.data} asked, but {workload.name} draws its own samples; leave it out")
        by_others = read_by_others(in_containers=engine.in_containers, on_hosts=cluster.remote)
        data = dataset.inspect(request.data, workload.data, by_others=by_others)
        if workload.data == "tokens":
            model = workload.find_model(request.model or workload.defaults[device].model, framework=image.framework)
            length = int(workload.settings_of(model, request.settings, mode=request.mode)[SEQUENCE])
            data = data.model_copy(update={"images": data.images // length})
    resources = Resources(
        cluster=cluster,
        device=device,
        engine=engine,
        image=image,
        workload=workload,
        dataset=data,
        workloads_sha256=programs_sha256(WORKLOADS),
        out=request.out or SUITE_ROOT / "results" / cluster.machine,
        nsight=find_nsight() if "metrics" in request.profile and device == "gpu" else Nsight(),
    )
    resources.check_engine()
    return resources


def _image(request: Request, cluster: Cluster, device: Device) -> AnyImage:
    """The image that is given, the machine's own software, or one of the suite's; only of the last it is known on which GPUs it runs."""
    if not request.image and request.engine != "host":
        return candidates(request, device, cluster)[0]
    framework = load_images(SUITE_ROOT).of(request.framework or "")[0].framework
    if request.image:
        refuse_closed_folders([Path(mount.source) for mount in request.mounts])
        found = look_up(cluster.image_source(), request.image)
        return CustomImage(found=found, framework=framework, device=device, mounts=request.mounts)
    return find_host_software(framework, device=device, horovod=request.strategy == "horovod")


def candidates(request: Request, device: Device, cluster: Cluster) -> list[ImageSpec]:
    """The images of the suite that a request may mean and that run here: one of the framework that was asked for, else of each.

    RequestError: there is none; of several reasons, the first.
    """
    catalog, node = load_images(SUITE_ROOT), cluster.node
    typed = request.version or ""
    if not request.framework and not any(image.version.startswith(typed) for image in catalog.images):
        raise RequestError(
            unknown("VERSION", typed, {image.version for image in catalog.images if image.device == device})
        )
    found, refusals = [], []
    for framework in [request.framework] if request.framework else dict.fromkeys((*PREFERRED, *catalog.frameworks)):
        try:
            # A framework that Horovod does not know is refused with the strategies that it has, when the plan is made.
            horovod = request.strategy == "horovod" and framework in STRATEGIES["horovod"].frameworks
            image = catalog.find(
                framework, request.version, device, gpus=node.gpus, driver=node.driver, horovod=horovod
            )
            if horovod:
                image = catalog.with_horovod(image)
            for member in cluster.members:
                catalog.check_fit(image, member.node.gpus, member.node.driver)
            found.append(image)
        except RequestError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return found


def read_by_others(*, in_containers: bool, on_hosts: bool) -> bool:
    """Whether data are read by somebody else than who runs the suite: on hosts, and by jobs of root in containers."""
    return in_containers and (on_hosts or job_user() == IMAGE_USER)


def refuse_closed_folders(folders: Sequence[Path]) -> None:
    """Refuse to show a job folders that it may not read. RequestError: with the command that opens one."""
    for folder in folders:
        if job_user() == IMAGE_USER and folder.is_dir():
            dataset.refuse_closed(folder)


def engine_of(request: Request, cluster: Cluster) -> EngineChoice:
    """The engine for a request on these machines. RequestError: the one that was asked for is not to be had."""
    match cluster.way:
        case "hosts":
            return EngineChoice("docker", None)  # hosts have it, or they would be none
        case "slurm":
            return _engine_of_steps(request.engine, cluster.steps[0])
        case way:
            return choose_engine("docker" if way == "emulated" else request.engine)


def _engine_of_steps(asked: EngineName | None, reach: StepReach) -> EngineChoice:
    """The engine for steps of a Slurm job: of what its first node has Apptainer first, then Podman, else the virtual environment."""
    if asked in ("venv", "pyxis"):
        return EngineChoice(asked, f"asked for with ENGINE={asked}")
    for name in (one for one in process.PROGRAMS if asked in (None, one)):
        found = process.find(name, reach.command)
        if found.available:
            return EngineChoice(name, f"asked for with ENGINE={asked}" if asked else None, version=found.version)
        if asked:
            raise RequestError(
                f"ENGINE={asked} asked, but on {reach.node} {found.reason}; load its module before the job, or ask for ENGINE=venv"
            )
    return EngineChoice("venv", f"{reach.node} has neither {' nor '.join(process.PROGRAMS)}")


def choose_engine(asked: EngineName | None) -> EngineChoice:
    """Docker where it answers, else the suite's own virtual environment, with the reason; any other only where it is asked for.

    Raises:
        RequestError: an engine was asked for and does not answer, or is not installed.
    """
    if asked in BARE_ENGINES:
        return EngineChoice(asked, f"asked for with ENGINE={asked}")
    if asked in process.PROGRAMS:
        found = process.find(asked)
        if not found.available:
            raise RequestError(
                f"ENGINE={asked} asked, but {found.reason}; install it, or ask for ENGINE=docker or ENGINE=venv"
            )
        return EngineChoice(asked, f"asked for with ENGINE={asked}", version=found.version)
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
