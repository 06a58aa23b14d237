"""A trial and what was made ready for it → what starts: its containers, and the samplers that look on."""

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
from runner.plan.launch.job import Job, sampler, samplers_of, take_seats


@dataclass(frozen=True)
class Samplers:
    """Where samplers run: a process of the runner's own Python on this machine, containers of the suite's base on others.

    `engines` are by node, and empty in a dry run of hosts.
    """

    describer: Describer
    engines: Mapping[str, Engine]
    image: str


@dataclass(frozen=True)
class Prepared:
    """What every trial of a plan runs in."""

    describer: Describer  # what launchers and dry runs ask
    engines: Mapping[str, Engine]  # by node, what starts its containers; empty in a dry run
    engine_details: EngineDetails
    image_used: ImageUsed
    data: Path | None  # None for synthetic data
    samplers: Samplers
    seconds: float  # that it took to make all this ready
    runs: str | None = None  # what engines know the image by, where that is not its reference
    image_ids: Mapping[str, str] = field(default_factory=dict)  # in each host's own engine, where there are several
    volume: str | None = None  # what the programs are in on hosts; None where they are read from this machine
    tools: str | None = None  # image of emulated nodes; None where there are none

    def release(self) -> None:
        """Remove what was brought onto hosts for these runs; the image stays."""
        for engine in self.engines.values():
            if self.volume and isinstance(engine, DockerEngine):
                volumes.remove(engine.client, self.volume)


@dataclass(frozen=True)
class Launch:
    """One run of a trial, with nothing left but to start its containers, and the samplers that look on.

    `job` is of one of the suite's own programs; None for an external one.
    """

    run_id: str
    trial: AnyTrial
    containers: tuple[ContainerSpec, ...]
    samplers: tuple[ContainerSpec, ...]
    job: Job | None = None


def lay_out(trial: AnyTrial, resources: AnyResources, prepared: Prepared, *, run_id: str, hz: int) -> Launch:
    """A trial with its containers and, at `hz` samples a second, its samplers; 0 for none."""
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
        beside = samplers_of(job, hz=hz, image=image, site=site)
    else:
        node, gpus = containers[0].node, containers[0].gpus
        one = sampler(run_id, node=node, gpus=gpus, hz=hz, site=site, image=image, user=describer.user())
        beside = (one,) if hz else ()
    return Launch(run_id, trial, containers, beside, job)


def container(
    trial: ExternalTrial, resources: ExternalResources, describer: Describer, *, run_id: str
) -> ContainerSpec:
    """The one container of a run: as confined as every job, with the image's own entry point.

    It runs under `lease.sh`, as an image that is not the suite's need not have Python; the engine refuses one without `/bin/sh`. The
    program's variables and threads are left to it.
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
            "PYTHONUNBUFFERED": "1",  # or the log comes at the end, and nobody sees the job work
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
    """A trial with the paths, user and port that it runs with; each job gets a port of its own."""
    describer = prepared.describer
    remote = resources.cluster.remote
    store = None if remote else compiler_store(trial, engine=describer.name, software=resources.image.software)
    mounts = describer.mounts(prepared.data)
    if store:
        mounts += (Mount(source=str(store), target=describer.place(store), read_only=False),)
    nodes = {}
    for node in (member.node for member in resources.cluster.members):
        # The run before may still hold its own for a minute: each begins at another place.
        first = zlib.crc32(run_id.encode()) % max(1, len(node.ports))
        ports = free_ports(PORTS) if resources.cluster.kind == "here" else node.ports[first:] + node.ports[:first]
        nodes[node.name] = node.model_copy(update={"ports": ports})
    return Job(
        run_id=run_id,
        trial=trial,
        seats=take_seats(trial, nodes, network="host" if remote else "emulated"),
        site=describer.site(prepared.data),
        image=prepared.runs or prepared.image_used.reference,
        user=describer.user(),
        mounts=mounts,
        remote=remote,
        tools=prepared.tools,
        entrypoint=resources.image.entrypoint,
        compiled=describer.place(store) if store else None,
    )


def compiler_store(trial: Trial, *, engine: str, software: str) -> Path | None:
    """Where the compilers of a trial keep their work between runs, which takes them minutes the first time; None where they have none.

    It is the one directory of this machine that a training may write to. Nothing measured is touched by it: a network is compiled before
    the first step ends. One software's work is of no use to another, and what an engine's user wrote may be closed to another's.
    """
    if "compile" not in trial.techniques:
        return None
    digest = hashlib.sha256(f"{engine}\n{software}".encode()).hexdigest()
    return cache_dir() / "compiled" / digest[:16]
