"""What the machines offer: nodes with their cores, memory, GPUs and network ports. Looks, and changes nothing.

The figures are those that a run can have (CPU affinity, control groups, CUDA_VISIBLE_DEVICES), not those on the box.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from runner import hostfs
from runner.cgroup import read_limits, usable_cores
from runner.hostfs import Hca, Nic
from runner.nvml import Gpu, read_gpus

__all__ = ["Cluster", "Gpu", "Hca", "Nic", "Node", "free_mib", "free_port", "inspect_local"]


class Node(BaseModel):
    """One machine, as far as this process may use it.

    Attributes:
        cores: ids of the logical CPUs that this process may run on, no more of them than `cpu_quota` can keep busy.
        cpu_quota: cores' worth of CPU time that the control groups allow; None without a quota.
        memory_mib: installed memory, or the control groups' limit where that is lower.
        gpu_reason: why there are no GPUs; None when there are.
        cuda_driver: the newest CUDA version that the driver speaks.
        rendezvous_port: a TCP port that was free a moment ago, where the ranks of a job find each other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    cores: tuple[int, ...]
    cpu_quota: float | None
    cpu_model: str | None
    memory_mib: int
    gpus: tuple[Gpu, ...]
    gpu_reason: str | None
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    driver: str | None
    cuda_driver: str | None
    rendezvous_port: int


class Cluster(BaseModel):
    """The machines that a run may use, the first of them the one where ranks meet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[Node, ...]


def inspect_local(
    *, sys_root: Path = Path("/"), nvml: Any | None = None, affinity: Iterable[int] | None = None
) -> Node:
    """Describe the machine that this process runs on.

    Args:
        sys_root: root of the /proc and /sys that are read; a made-up tree in tests.
        nvml: a module with nvidia-ml-py's interface; that library itself when None.
        affinity: CPU ids that the scheduler allows; asked of the kernel when None.
    """
    limits = read_limits(sys_root)
    allowed = frozenset(os.sched_getaffinity(0) if affinity is None else affinity)
    cores = sorted(allowed if limits.cpus is None else allowed & limits.cpus)
    inventory = read_gpus(sys_root=sys_root, nvml=nvml, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    memory = [size for size in (hostfs.memory_total_bytes(sys_root), limits.memory_bytes) if size is not None]
    return Node(
        name=socket.gethostname(),
        cores=tuple(cores[: usable_cores(len(cores), limits.cpu_quota)]),
        cpu_quota=limits.cpu_quota,
        cpu_model=hostfs.cpu_model(sys_root),
        memory_mib=min(memory, default=0) // 2**20,
        gpus=inventory.gpus,
        gpu_reason=inventory.reason,
        nics=hostfs.read_nics(sys_root),
        hcas=hostfs.read_hcas(sys_root),
        driver=inventory.driver,
        cuda_driver=inventory.cuda_driver,
        rendezvous_port=free_port(),
    )


def free_port() -> int:
    """A TCP port that no process of this machine holds, on any of its addresses.

    The kernel hands these out in turn and not again soon, so that it is still free when the ranks bind it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def free_mib(path: Path) -> int:
    """Free disk in MiB where `path` is, or will be once its missing parents are made."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free // 2**20
