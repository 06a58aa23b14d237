"""What every launcher shares: the training program's argv, its environment, and a spec with the suite's limits."""

from __future__ import annotations

from dataclasses import dataclass

from runner import interconnect
from runner.cluster import Node
from runner.engines.base import Site
from runner.spec import LABEL_ROLE, LABEL_RUN, ContainerSpec, Mount, Role
from runner.trial import Trial

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """A trial with everything that launching it needs.

    Attributes:
        user: numeric `uid:gid` inside containers.
        mounts: the directories that the engine has to bring in (programs, data).
        memory_mib: memory limit of each worker.
    """

    run_id: str
    trial: Trial
    node: Node
    site: Site
    image: str
    user: str
    mounts: tuple[Mount, ...]

    @property
    def memory_mib(self) -> int:
        """All but an eighth of the host's memory, so that a leak ends the job and not the host."""
        return self.node.memory_mib * 7 // 8

    @property
    def cpus(self) -> tuple[int, ...]:
        """The cores of the whole job: one share a CPU worker, as far as there are cores; all cores beside GPUs."""
        share = self.trial.cpus_per_worker
        return self.node.cores if share is None else self.node.cores[: share * self.trial.world_size]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs of the whole job."""
        return tuple(gpu.index for gpu in self.node.gpus[: self.trial.world_size]) if self.trial.device == "gpu" else ()

    def worker_cpus(self, worker: int) -> tuple[int, ...]:
        """The cores of one worker that has a container of its own; handed out round and round where they are too few."""
        share = self.trial.cpus_per_worker
        if share is None:
            return self.node.cores
        places = (self.cpus[(share * worker + core) % len(self.cpus)] for core in range(share))
        return tuple(sorted(set(places)))


def leased(job: Job, *argv: str) -> tuple[str, ...]:
    """Put a command under the lease: it ends when the runner's end of standard input closes."""
    return (job.site.python, f"{job.site.workloads}/lease.py", *argv)


def program(job: Job) -> tuple[str, ...]:
    """The training program and all its arguments; nothing is left to its defaults."""
    trial = job.trial
    flags: dict[str, str | int | float] = {
        "model": trial.model,
        "image-size": trial.image_shape[1],
        "num-classes": trial.num_classes,
        "batch": trial.batch_per_device,
        "iterations": trial.iterations,
        "warmup": trial.warmup,
        "window": trial.window,
        "precision": trial.precision,
        "device": trial.device,
        "devices": trial.world_size // trial.processes,
        "strategy": trial.strategy,
        "data": job.site.data or "synthetic",
        "learning-rate": trial.learning_rate,
        "momentum": trial.momentum,
        "weight-decay": trial.weight_decay,
        "seed": trial.seed,
        "threads": trial.threads,
        "cpus-per-worker": trial.cpus_per_worker or 0,
        "loader-workers": trial.loader_workers,
    }
    if trial.kvstore:
        flags["kvstore"] = trial.kvstore
    if trial.horovod:
        flags["compression"] = trial.horovod.compression
    words = (f"--{name}={value}" for name, value in flags.items())
    return (f"{job.site.workloads}/{trial.program}", *words, *(("--xla",) if trial.xla else ()))


def spec(
    job: Job,
    *,
    role: Role,
    number: int = 0,
    processes: int = 1,
    argv: tuple[str, ...],
    cpus: tuple[int, ...],
    gpus: tuple[int, ...] | None = None,
    env: dict[str, str] | None = None,
    network: str = "none",
) -> ContainerSpec:
    """A container of this job, with the environment and limits that all of them have; with all its GPUs unless told otherwise."""
    trial = job.trial
    common = {
        "HOME": "/tmp",  # noqa: S108 - the one writable place of a read-only container
        "USER": "bench",  # the runner's own uid has no name inside, and PyTorch's compiler asks for one
        "OMP_NUM_THREADS": str(trial.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return ContainerSpec(
        name=name(job, role, number),
        node=job.node.name,
        role=role,
        number=number,
        processes=processes,
        image=job.image,
        argv=leased(job, *argv),
        env={**common, **interconnect.environment(trial), **(env or {})},
        mounts=job.mounts,
        gpus=job.gpus if gpus is None else gpus,
        cpus=cpus,
        memory_mib=job.memory_mib,
        user=job.user,
        network=network,
        labels={LABEL_RUN: job.run_id, LABEL_ROLE: role},
    )


def name(job: Job, role: Role, number: int) -> str:
    """The container's name: unique on the host, and found again by eye."""
    return f"dlscale-{job.run_id}-{role}{number}"
