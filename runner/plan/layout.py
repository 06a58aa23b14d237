"""A trial and what was prepared for it → its containers and samplers, ready to start."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.cluster.machine.local_node import PORTS
from runner.cluster.machine.snapshot import free_ports
from runner.core.cache import cache_dir
from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec, Mount
from runner.core.record import EngineDetails, ImageUsed
from runner.core.trial import AnyTrial, ExternalTrial, Trial, title
from runner.engines import volumes
from runner.engines.base import Describer, Engine
from runner.engines.docker import DockerEngine
from runner.plan.discovery import AnyResources, ExternalResources, Resources
from runner.plan.launch import launch
from runner.plan.launch.job import Job, assign_seats, sampler, samplers_of


@dataclass(frozen=True)
class Samplers:
    """How samplers run: in containers of the suite's base on hosts with Docker, elsewhere as processes of the runner's own Python.

    `engines` are by node, and empty in a dry run on hosts.
    """

    describer: Describer
    engines: Mapping[str, Engine]
    image: str


@dataclass(frozen=True)
class Prepared:
    """What all trials of a plan run in."""

    describer: Describer  # for launchers and dry runs
    engines: Mapping[str, Engine]  # by node; empty in a dry run
    engine_details: EngineDetails
    image_used: ImageUsed
    data: Path | None  # None for synthetic data
    samplers: Samplers
    seconds: float  # time that the preparation took
    image_name: str | None = None  # the engines' name for the image, if it is not its reference
    image_ids: Mapping[str, str] = field(default_factory=dict)  # by host, in its own engine
    volume: str | None = None  # of the programs on hosts; None if they are read from this machine
    tools: str | None = None  # image of emulated nodes; None without any

    def release(self) -> None:
        """Remove the volumes that these runs made on hosts; images stay."""
        for engine in self.engines.values():
            if self.volume and isinstance(engine, DockerEngine):
                volumes.remove(engine.client, self.volume)


@dataclass(frozen=True)
class Launch:
    """One run of a trial: its containers and samplers, ready to start; `job` is None for an external program."""

    run_id: str
    trial: AnyTrial
    containers: tuple[ContainerSpec, ...]
    samplers: tuple[ContainerSpec, ...]
    job: Job | None = None


def lay_out(trial: AnyTrial, resources: AnyResources, prepared: Prepared, *, run_id: str, hz: int) -> Launch:
    """Make the containers of a trial and its samplers, at `hz` samples a second; none at 0."""
    job = None
    if isinstance(trial, Trial) and isinstance(resources, Resources):
        job = make_job(trial, resources, prepared, run_id=run_id)
        containers = launch(job)
    elif isinstance(trial, ExternalTrial) and isinstance(resources, ExternalResources):
        containers = (container(trial, resources, prepared.describer, run_id=run_id),)
    else:
        raise TypeError(f"{title(trial)} was planned for other resources")
    image, describer = prepared.samplers.image, prepared.samplers.describer
    site = describer.site(None)
    if job:
        samplers = samplers_of(job, hz=hz, image=image, site=site)
    else:
        node, gpus = containers[0].node, containers[0].gpus
        one = sampler(run_id, node=node, gpus=gpus, hz=hz, site=site, image=image, user=describer.user())
        samplers = (one,) if hz else ()
    return Launch(run_id, trial, containers, samplers, job)


def container(
    trial: ExternalTrial, resources: ExternalResources, describer: Describer, *, run_id: str
) -> ContainerSpec:
    """The single container of an external program: as confined as every job, with the image's own entry point.

    It runs under `lease.sh`, because an external image need not have Python; the engine refuses one without `/bin/sh`. The program sets its
    own variables and threads.
    """
    node = resources.node
    cores = node.cores if trial.cpus_per_worker is None else node.cores[: trial.cpus_per_worker * trial.world_size]
    lease = f"{describer.site(resources.data).workloads}/lease.sh"
    return ContainerSpec(
        name=f"dlscale-{run_id}-worker0",
        node=node.name,
        role="worker",
        image=trial.image,
        argv=("/bin/sh", lease, *resources.image.entrypoint, *trial.command),
        env={
            "HOME": "/tmp",  # noqa: S108 - the one writable place of a read-only container
            "USER": "bench",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",  # otherwise the log appears only at the end
            **trial.env,
        },
        workdir=trial.workdir,
        mounts=describer.mounts(resources.data),
        gpus=tuple(gpu.index for gpu in node.gpus[: trial.world_size]) if trial.device == "gpu" else (),
        cpus=cores,
        memory_mib=node.memory_mib * 7 // 8,
        user=describer.user(),
        labels={LABEL_RUN: run_id, LABEL_ROLE: "worker"},
    )


def make_job(trial: Trial, resources: Resources, prepared: Prepared, *, run_id: str) -> Job:
    """Combine a trial with its paths, user and ports; each job gets its own ports."""
    describer = prepared.describer
    remote = resources.cluster.remote
    store = None if remote else compiler_store(trial, engine=describer.name, software=resources.image.software)
    mounts = describer.mounts(prepared.data)
    if store:
        mounts += (Mount(source=str(store), target=describer.place(store), read_only=False),)
    nodes = {}
    for node in (member.node for member in resources.cluster.members):
        # The previous run may hold its ports for another minute, so each run starts at another one.
        first = zlib.crc32(run_id.encode()) % max(1, len(node.ports))
        ports = free_ports(PORTS) if resources.cluster.kind == "here" else node.ports[first:] + node.ports[:first]
        nodes[node.name] = node.model_copy(update={"ports": ports})
    return Job(
        run_id=run_id,
        trial=trial,
        seats=assign_seats(trial, nodes, network="host" if remote else "emulated"),
        site=describer.site(prepared.data),
        image=prepared.image_name or prepared.image_used.reference,
        user=describer.user(),
        mounts=mounts,
        remote=remote,
        tools=prepared.tools,
        entrypoint=resources.image.entrypoint,
        compiled=describer.place(store) if store else None,
    )


def compiler_store(trial: Trial, *, engine: str, software: str) -> Path | None:
    """The directory in which compilers keep their work between runs, of which the first takes minutes; None if a trial compiles nothing.

    It is the only directory of this machine that a training may write to. It does not affect what is measured: a network is compiled before
    the first step ends. One software's work is useless to another, and one engine's files may be closed to another engine's user.
    """
    if "compile" not in trial.techniques:
        return None
    digest = hashlib.sha256(f"{engine}\n{software}".encode()).hexdigest()
    return cache_dir() / "compiled" / digest[:16]
