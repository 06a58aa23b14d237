"""What launchers share: a trial with its nodes, the training program's argv and environment, its containers, and their samplers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from runner.core.container_spec import HOME, LABEL_ROLE, LABEL_RUN, SHM_MIB, SILENCE_S, ContainerSpec, Mount, Role
from runner.core.node import Node
from runner.core.trial import Placed, Trial
from runner.engines.base import Site
from runner.plan import interconnect_environment

Network = Literal["none", "host", "emulated", "pod"]

LOOPBACK = "127.0.0.1"
# Flags that inference programs lack.
OF_TRAINING = frozenset({"strategy", "learning-rate", "momentum", "weight-decay"})


@dataclass(frozen=True)
class Seat:
    """One node's share of a job."""

    node: Node
    placed: Placed  # its devices and wire, from the trial
    first: int  # number of its first rank in the job
    processes: int  # number of its ranks
    cores: tuple[int, ...]  # the job's cores of the node
    gpus: tuple[int, ...]  # the job's GPUs of the node
    network: Network  # of its containers; `emulated` is the namespace of a stand-in container, `pod` that of a pod

    @property
    def address(self) -> str:
        """The address by which the other nodes, or the ranks of a single node, reach it."""
        return self.placed.wire.address if self.placed.wire else LOOPBACK

    @property
    def iface(self) -> str:
        """The interface with that address."""
        return self.placed.wire.iface if self.placed.wire else "lo"

    @property
    def memory_mib(self) -> int:
        """All but an eighth of the node's memory, so that a leak ends the job and not the host."""
        return self.node.memory_mib * 7 // 8

    def worker_cores(self, worker: int, share: int | None) -> tuple[int, ...]:
        """The cores of a worker in its own container: `share` of them, or all if None; assigned round-robin if they are too few."""
        if share is None:
            return self.cores
        places = (self.cores[(share * worker + core) % len(self.cores)] for core in range(share))
        return tuple(sorted(set(places)))


@dataclass(frozen=True)
class Job:
    """A trial with everything that its launcher needs."""

    run_id: str
    trial: Trial
    seats: tuple[Seat, ...]  # the nodes, in the order of the ranks
    site: Site
    image: str
    user: str  # numeric `uid:gid` inside containers
    mounts: tuple[Mount, ...]  # of the engine: programs, data
    remote: bool = False  # whether its nodes are other machines, which keep running if the network is cut
    tools: str | None = None  # image of emulated nodes, with Python and tc
    keys: str | None = None  # folder of its containers' SSH keys, in memory only
    entrypoint: tuple[str, ...] = ()  # words that the image puts before every command
    compiled: str | None = None  # the compilers' directory, as the job sees it

    @property
    def head(self) -> Seat:
        """The node with rank 0, at which the ranks rendezvous."""
        return self.seats[0]


def assign_seats(trial: Trial, nodes: dict[str, Node], *, network: Network) -> tuple[Seat, ...]:
    """Assign ranks and devices to each node of a trial; `nodes` are by name. `network` is for several nodes; a single node has none."""
    seats: list[Seat] = []
    share = trial.cpus_per_worker
    for placed in trial.placement:
        node = nodes[placed.node]
        own = slice(trial.first_device, trial.first_device + placed.devices)
        seats.append(
            Seat(
                node=node,
                placed=placed,
                first=sum(seat.processes for seat in seats),
                processes=trial.processes * placed.devices // trial.world_size,
                cores=node.cores if share is None else node.cores[share * own.start : share * own.stop],
                gpus=tuple(gpu.index for gpu in node.gpus[own]) if trial.device == "gpu" else (),
                network=network if len(trial.placement) > 1 else "none",
            )
        )
    return tuple(seats)


def leased(job: Job, *argv: str) -> tuple[str, ...]:
    """Run a command under the lease: it ends once the runner closes its stdin or, on other machines, sends no more heartbeats; in a pod, on SIGTERM."""
    if job.head.network == "pod":
        names = ",".join(dict.fromkeys(seat.address for seat in job.seats if seat.placed.wire))
        return (job.site.python, f"{job.site.workloads}/lease.py", f"--pod={names}", *argv)
    beat = (f"--heartbeat={SILENCE_S:g}",) if job.remote else ()
    keys = (f"--keys={job.keys}",) if job.keys else ()
    return (job.site.python, f"{job.site.workloads}/lease.py", *beat, *keys, *argv)


def program(job: Job) -> tuple[str, ...]:
    """The argv of the training program, with all flags set, so that none depends on its default."""
    trial = job.trial
    profile = trial.profile
    flags: dict[str, str | int | float | None] = {
        "model": trial.model,
        "batch": trial.batch_per_device,
        "iterations": trial.iterations,
        "measure-seconds": None if trial.iterations else trial.measure_s or 0.0,
        "warmup": trial.warmup,
        "window": trial.window,
        "precision": trial.precision,
        "device": trial.device,
        "devices": trial.world_size // trial.processes,
        "strategy": trial.strategy,
        "data": job.site.data or "synthetic",
        "learning-rate": trial.learning_rate,
        "seed": trial.seed,
        "threads": trial.threads,
        "cpus-per-worker": trial.cpus_per_worker or 0,
        "loader-workers": trial.loader_workers,
        "image-size": trial.image_size,
        "num-classes": trial.num_classes,
        "momentum": trial.momentum,
        "weight-decay": trial.weight_decay,
        "epoch-iterations": trial.epoch_iterations,
        "fit": trial.fit if trial.mode == "infer" else None,
        "techniques": ",".join(trial.techniques) or None,
        "compiled": job.compiled,
        "decode": trial.decode if trial.decode != "cpu" else None,
        "gpu-memory": trial.gpu_memory if trial.gpu_memory != "as-needed" else None,
        **trial.settings,
        "kvstore": trial.kvstore,
        "compression": trial.horovod.compression if trial.horovod else None,
        "probe": ",".join(map(str, trial.probe_bytes)) or None,
        "profile": profile.kind if profile else None,
        "profile-after": profile.after if profile else None,
        "profile-iterations": profile.iterations if profile else None,
        "profile-region": profile.region if profile else None,
    }
    unused = OF_TRAINING if trial.mode == "infer" else frozenset[str]()
    words = (f"--{name}={value}" for name, value in flags.items() if value is not None and name not in unused)
    return (f"{job.site.workloads}/{trial.program}", *words, *(("--xla",) if trial.xla else ()))


def spec(
    job: Job,
    seat: Seat,
    *,
    role: Role,
    number: int = 0,
    processes: int = 1,
    argv: tuple[str, ...],
    cpus: tuple[int, ...] | None = None,
    gpus: tuple[int, ...] | None = None,
    env: dict[str, str] | None = None,
    network: str | None = None,
) -> ContainerSpec:
    """A container of this job on one of its nodes, by default with all cores and GPUs of the seat, and with its network."""
    trial, wire = job.trial, seat.placed.wire
    node = seat.node.name if wire else None
    common = {
        "HOME": HOME,
        "USER": "bench",  # the runner's own uid has no name inside, and PyTorch's compiler asks for one
        "OMP_NUM_THREADS": str(trial.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **({"DLSCALE_NODE": node} if node else {}),
    }
    if network is None:
        network = f"container:{stand_in(job, seat)}" if seat.network == "emulated" else seat.network
    return ContainerSpec(
        name=name(job, role, number),
        node=seat.node.name,
        role=role,
        number=number,
        processes=processes,
        image=job.image,
        argv=leased(job, *job.entrypoint, *argv),
        env={**common, **interconnect_environment.environment(trial, wire, node=node), **(env or {})},
        mounts=job.mounts,
        gpus=seat.gpus if gpus is None else gpus,
        cpus=seat.cores if cpus is None else cpus,
        memory_mib=seat.memory_mib,
        # Loader workers queue two batches each: a rank with 16 workers at batch 256 fills more than a GiB.
        shm_mib=max(SHM_MIB, seat.memory_mib // 2) if trial.loader_workers else SHM_MIB,
        user=job.user,
        network=network,
        hostname=seat.node.name if network == "host" else None,  # a joined namespace includes its host name
        keys=job.keys,
        verbs=bool(wire and wire.hcas) and role in ("worker", "daemon"),  # ranks run in both roles
        labels={LABEL_RUN: job.run_id, LABEL_ROLE: role},
    )


def worker_per_node(job: Job, argv: Callable[[int, Seat], tuple[str, ...]]) -> tuple[ContainerSpec, ...]:
    """One container on each node that starts all ranks there; `argv` returns its command, from the node's number and seat."""
    return tuple(
        spec(job, seat, role="worker", number=number, processes=seat.processes, argv=argv(number, seat))
        for number, seat in enumerate(job.seats)
    )


def node_containers(job: Job) -> tuple[ContainerSpec, ...]:
    """The stand-in containers for a job's emulated nodes; none for real nodes or a single one.

    Each is small and owns a network namespace, like a pod's pause container: on the run's own network, under the node's name, limited to the
    requested link. The job's containers on that node join it, so that every strategy runs as on real hosts.
    """
    return tuple(_emulated(job, seat, number) for number, seat in enumerate(job.seats) if seat.network == "emulated")


def _emulated(job: Job, seat: Seat, number: int) -> ContainerSpec:
    assert job.tools is not None  # noqa: S101 - prepared whenever nodes are emulated
    return ContainerSpec(
        name=stand_in(job, seat),
        node=seat.node.name,
        role="daemon",
        number=number,
        image=job.tools,
        argv=leased(job, "sleep", "infinity"),
        env={},
        mounts=tuple(mount for mount in job.mounts if mount.target == job.site.workloads),  # contains the lease
        cpus=seat.node.cores,
        memory_mib=128,  # enough to start Python; then it sleeps
        shm_mib=1,
        tmp_mib=1,
        user=job.user,
        network=f"dlscale-{job.run_id}",
        hostname=seat.node.name,
        aliases=(seat.node.name,),
        link=job.trial.link,
        labels={LABEL_RUN: job.run_id, LABEL_ROLE: "daemon"},
    )


def name(job: Job, role: Role, number: int) -> str:
    """The container's name: unique on every host of the job, and easy to recognize."""
    return f"dlscale-{job.run_id}-{role}{number}"


def stand_in(job: Job, seat: Seat) -> str:
    """The name of the stand-in container for an emulated node."""
    return f"dlscale-{job.run_id}-{seat.node.name}"


# Folder next to the programs on other hosts, with the sampler's modules that base systems lack.
MODULES: Final = "site"


def samplers_of(job: Job, *, hz: int, image: str, site: Site) -> tuple[ContainerSpec, ...]:
    """The samplers of a job, at `hz` samples a second; none at 0. Emulated nodes share a machine, and so one sampler."""
    if not hz:
        return ()
    of_machine = partial(sampler, job.run_id, hz=hz, site=site, image=image, user=job.user)
    if not job.remote:
        return (of_machine(node=job.head.node.name, gpus=tuple(gpu for seat in job.seats for gpu in seat.gpus)),)
    return tuple(
        of_machine(node=seat.node.name, gpus=seat.gpus, number=number, remote=True).model_copy(
            update={"mounts": job.mounts, "gpus": seat.gpus, "network": "host", "host_pids": True}
        )
        for number, seat in enumerate(job.seats)
    )


def sampler(
    run_id: str,
    *,
    node: str,
    gpus: tuple[int, ...],
    hz: int,
    site: Site,
    image: str,
    user: str,
    number: int = 0,
    remote: bool = False,
) -> ContainerSpec:
    """The sampler of one machine: a process on this one, which sees all of it, or a process or container on another, completed by `samplers_of`.

    A `remote` sampler ends without the runner's heartbeats, and finds the modules that were copied to its host, if any.
    """
    beat = (f"--heartbeat={SILENCE_S:g}",) if remote else ()
    flags = (f"--node={node}", f"--hz={hz}", f"--gpus={','.join(map(str, gpus))}")
    return ContainerSpec(
        name=f"dlscale-{run_id}-monitor{number}",
        node=node,
        role="monitor",
        number=number,
        image=image,
        argv=(site.python, f"{site.workloads}/lease.py", *beat, site.python, f"{site.workloads}/monitor.py", *flags),
        env={
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **({"PYTHONPATH": f"{site.workloads}/{MODULES}"} if remote else {}),
        },
        user=user,
        labels={LABEL_RUN: run_id, LABEL_ROLE: "monitor"},
    )
