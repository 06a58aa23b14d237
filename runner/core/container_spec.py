"""`ContainerSpec`: what one container of a run is, down to its argv. Launchers make it, engines run it, `--dry-run` prints it."""

from __future__ import annotations

from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.wire import Link

# A daemon serves the others and is ended with them, a monitor only looks on; all else ends by itself.
Role = Literal["worker", "scheduler", "server", "daemon", "tool", "monitor"]

# The user that every image of the suite has for its jobs: `bench`, as numeric `uid:gid`.
IMAGE_USER: Final = "10001:10001"
# Home of every job: the one writable place of a read-only container.
HOME: Final = "/tmp"  # noqa: S108 - inside of a container
# Size of /dev/shm in MiB where nothing asks for more.
SHM_MIB: Final = 1024
LABEL_RUN = "dlscale.run-id"
LABEL_ROLE = "dlscale.role"
# Whose it is (`runner/engines/owner.py`); engines add it.
LABEL_RUNNER = "dlscale.runner"


class Mount(Frozen):
    """A directory, file or named volume of the host inside the container, read-only unless a job has to write there."""

    source: str
    target: str
    read_only: bool = True


class ContainerSpec(Frozen):
    """One container (or, without a container engine, one process tree) of a run.

    Attributes:
        name: unique on its host: `dlscale-<run id>-<role><number>`.
        node: the host it runs on, by its name in the cluster.
        role: what it does in the job; the run succeeds when every worker, scheduler and server ends with 0.
        number: position among the containers of its role, from 0.
        processes: training processes (ranks) that it starts.
        image: reference of the image; the environment's own reference where there is no container.
        argv: program and arguments, handed over without a shell.
        env: environment variables on top of the image's.
        workdir: where the program starts; None for where the image says.
        mounts: directories of the host.
        gpus: indices of the host's GPUs that it sees.
        cpus: host CPU ids it may run on.
        memory_mib: memory limit in MiB, None for no limit.
        shm_mib: size of /dev/shm in MiB (data loader workers and Gloo/NCCL shared memory live there).
        tmp_mib: size of the writable /tmp in MiB.
        user: numeric `uid:gid`.
        network: `none` (its own namespace with a loopback only), `container:<name>` (that container's namespace), `host` (a job on
            several hosts) or the name of a network that the run made for itself.
        hostname: its own name for itself; the engine's choice when None.
        aliases: names by which the others on the run's own network find it.
        link: what everything that it sends over that network is held to; None for as fast as it is.
        net_admin: whether it may configure the network namespace that it is in.
        verbs: whether it reaches the host's RDMA adapters, and may lock the memory that they read.
        keys: folder in memory alone where the lease puts the keys that the runner hands it (`runner/run/ssh_keys.py`); None for no keys.
        host_pids: whether it sees the processes of the host, which those on a GPU are named by.
        labels: run id and role, by which `dlscale clean` finds it.
    """

    name: str
    node: str
    role: Role
    number: int = 0
    processes: int = 1
    image: str
    argv: tuple[str, ...]
    env: dict[str, str]
    workdir: str | None = None
    mounts: tuple[Mount, ...] = ()
    gpus: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    memory_mib: int | None = None
    shm_mib: int = SHM_MIB
    tmp_mib: int = 1024
    user: str
    network: str = "none"
    hostname: str | None = None
    aliases: tuple[str, ...] = ()
    link: Link | None = None
    net_admin: bool = False
    verbs: bool = False
    keys: str | None = None
    host_pids: bool = False
    labels: dict[str, str]

    @property
    def own_network(self) -> bool:
        """Whether it lives in a network that the run makes for itself."""
        return self.network not in ("none", "host") and not self.network.startswith("container:")
