"""`ContainerSpec`: one container of a run, down to its argv. Launchers make it, engines run it, `--dry-run` prints it."""

from __future__ import annotations

from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.wire import Link

# A daemon serves the others and is stopped once they have exited, a monitor only observes; containers of other roles exit on their own.
Role = Literal["worker", "scheduler", "server", "daemon", "tool", "monitor"]

# The user that runs jobs in the suite's images: `bench`, as numeric `uid:gid`.
IMAGE_USER: Final = "10001:10001"
# Home of every job: the only writable directory of a read-only container.
HOME: Final = "/tmp"  # noqa: S108 - inside of a container
# In a run on several nodes, the runner sends each container a heartbeat and checks each engine every BEAT_S seconds. After SILENCE_S without one
# or an answer, the other end counts as lost. A node that is cut off is free by then, or 5 s later if its program ignores SIGTERM.
BEAT_S: Final = 3.0
SILENCE_S: Final = 12.0
# Default size of /dev/shm in MiB.
SHM_MIB: Final = 1024
LABEL_RUN = "dlscale.run-id"
LABEL_ROLE = "dlscale.role"
# Its owner (`runner/engines/owner.py`); engines add this label.
LABEL_RUNNER = "dlscale.runner"
# The environment variables that replace run id and owner for jobs without containers, whose engines have no labels.
VARIABLES: Final = {LABEL_RUN: "DLSCALE_RUN_ID", LABEL_RUNNER: "DLSCALE_RUNNER"}


class Mount(Frozen):
    """A directory, file or named volume of the host, mounted in the container; read-only unless a job has to write there."""

    source: str
    target: str
    read_only: bool = True


class ContainerSpec(Frozen):
    """One container (or, without a container engine, one process tree) of a run, which succeeds if all containers but daemons and monitors exit 0.

    `network` is `none` (its own namespace with only a loopback), `container:<name>` (that container's), `host` (a job on several hosts),
    `pod` (a Kubernetes pod's) or the name of a network that the run created.
    """

    name: str  # unique on its host: `dlscale-<run id>-<role><number>`
    node: str
    role: Role
    number: int = 0  # index among the containers of its role
    processes: int = 1  # training processes (ranks) that it starts
    image: str
    argv: tuple[str, ...]  # executed without a shell
    env: dict[str, str]  # in addition to the image's
    workdir: str | None = None  # working directory; None for the image's
    mounts: tuple[Mount, ...] = ()
    gpus: tuple[int, ...] = ()  # indices on the host
    cpus: tuple[int, ...] = ()  # ids of the host's logical CPUs
    memory_mib: int | None = None  # limit
    shm_mib: int = SHM_MIB  # /dev/shm: data loader workers, and shared memory of Gloo and NCCL
    tmp_mib: int = 1024  # the writable /tmp
    user: str  # numeric `uid:gid`
    network: str = "none"
    joined: bool = False  # whether other containers of the run share its network
    hostname: str | None = None
    aliases: tuple[str, ...] = ()  # its host names on the run's own network
    link: Link | None = None  # rate limit and delay of what it sends in that network
    net_admin: bool = False  # whether it may configure its network namespace
    verbs: bool = False  # whether it may use the host's RDMA adapters, and lock the memory that they access
    keys: str | None = None  # folder, in memory only, where the lease stores the keys that the runner sends it
    host_pids: bool = False  # whether it sees the host's pids, by which NVML names the processes on a GPU
    labels: dict[str, str]  # run id and role, by which `dlscale clean` finds it

    @property
    def own_network(self) -> bool:
        """Whether it is in a network that the run creates."""
        return self.network not in ("none", "host", "pod") and not self.network.startswith("container:")
