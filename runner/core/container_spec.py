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
# Seconds between two signs of life, either way, of a run on several nodes, and of silence after which the other end counts as gone: a node that
# is cut off is free within about 15 s, of which a program that ignores SIGTERM takes 5.
BEAT_S: Final = 3.0
SILENCE_S: Final = 12.0
# Size of /dev/shm in MiB where nothing asks for more.
SHM_MIB: Final = 1024
LABEL_RUN = "dlscale.run-id"
LABEL_ROLE = "dlscale.role"
# Whose it is (`runner/engines/owner.py`); engines add it.
LABEL_RUNNER = "dlscale.runner"
# The same two in the environment of jobs that are processes, whose engine keeps no labels.
VARIABLES: Final = {LABEL_RUN: "DLSCALE_RUN_ID", LABEL_RUNNER: "DLSCALE_RUNNER"}


class Mount(Frozen):
    """A directory, file or named volume of the host inside the container, read-only unless a job has to write there."""

    source: str
    target: str
    read_only: bool = True


class ContainerSpec(Frozen):
    """One container (or, without a container engine, one process tree) of a run, which succeeds when all but daemons end with 0.

    `network` is `none` (its own namespace with a loopback only), `container:<name>` (that container's), `host` (a job on several hosts),
    `pod` (a pod's of Kubernetes) or the name of a network that the run made for itself.
    """

    name: str  # unique on its host: `dlscale-<run id>-<role><number>`
    node: str
    role: Role
    number: int = 0  # among the containers of its role
    processes: int = 1  # training processes (ranks) that it starts
    image: str
    argv: tuple[str, ...]  # handed over without a shell
    env: dict[str, str]  # on top of the image's
    workdir: str | None = None  # None for where the image says
    mounts: tuple[Mount, ...] = ()
    gpus: tuple[int, ...] = ()  # indices of the host's
    cpus: tuple[int, ...] = ()  # ids of the host's
    memory_mib: int | None = None  # its limit
    shm_mib: int = SHM_MIB  # /dev/shm: data loader workers, and shared memory of Gloo and NCCL
    tmp_mib: int = 1024  # the writable /tmp
    user: str  # numeric `uid:gid`
    network: str = "none"
    joined: bool = False  # whether others of the run live in its network
    hostname: str | None = None
    aliases: tuple[str, ...] = ()  # names by which the others on the run's own network find it
    link: Link | None = None  # what it sends over that network is held to
    net_admin: bool = False  # whether it may configure its network namespace
    verbs: bool = False  # whether it reaches the host's RDMA adapters, and may lock the memory that they read
    keys: str | None = None  # folder in memory alone where the lease puts the keys that the runner hands it
    host_pids: bool = False  # whether it sees the host's processes, which those on a GPU are named by
    labels: dict[str, str]  # run id and role, by which `dlscale clean` finds it

    @property
    def own_network(self) -> bool:
        """Whether it lives in a network that the run makes for itself."""
        return self.network not in ("none", "host", "pod") and not self.network.startswith("container:")
