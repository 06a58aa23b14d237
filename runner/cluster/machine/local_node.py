"""A machine as a `Node`: the cores, memory, GPUs and network ports that a run can have; and its condition, which `doctor` judges.

Inspects, and changes nothing. The figures are what CPU affinity, control groups and CUDA_VISIBLE_DEVICES leave, not what is installed.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cluster.machine import hostfs, snapshot
from runner.cluster.machine.hostfs import read_limits, usable_cores
from runner.cluster.machine.nvml import GpuHealth, NvmlAnswers, ask_nvml, read_gpus, read_health
from runner.core.cache import free_mib
from runner.core.frozen import Frozen
from runner.core.node import Node

# Enough for every rank of one job on a node, with some to spare.
PORTS = 64


def inspect_local(
    *, sys_root: Path = Path("/"), nvml: Any | None = None, affinity: Iterable[int] | None = None
) -> Node:
    """Describe this machine; tests pass a fake tree, a module with nvidia-ml-py's interface, and CPU ids."""
    return read_node(
        name=socket.gethostname(),
        sys_root=sys_root,
        answers=ask_nvml(nvml),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        affinity=os.sched_getaffinity(0) if affinity is None else affinity,
        addresses=snapshot.addresses() if sys_root == Path("/") else {},
        ports=snapshot.free_ports(PORTS),
    )


def read_node(
    *,
    name: str,
    sys_root: Path,
    answers: NvmlAnswers,
    visible: str | None,
    affinity: Iterable[int],
    addresses: Mapping[str, str],
    ports: Sequence[int],
) -> Node:
    """Describe a machine, this one or another by its snapshot, from its files and further answers.

    `affinity`: the CPU ids that its scheduler allows; `visible`: its CUDA_VISIBLE_DEVICES; `ports`: ports that were free.
    """
    limits = read_limits(sys_root)
    allowed = frozenset(affinity)
    cores = sorted(allowed if limits.cpus is None else allowed & limits.cpus)
    gpus, gpu_reason = read_gpus(answers, sys_root=sys_root, visible=visible)
    memory = [size for size in (hostfs.memory_total_bytes(sys_root), limits.memory_bytes) if size is not None]
    return Node(
        name=name,
        cores=tuple(cores[: usable_cores(len(cores), limits.cpu_quota)]),
        cpu_quota=limits.cpu_quota,
        cpu_model=hostfs.first_processor(sys_root).get("model name"),
        memory_mib=min(memory, default=0) // 2**20,
        counts_energy=hostfs.counts_energy(sys_root),
        gpus=gpus,
        gpu_reason=gpu_reason,
        nics=hostfs.read_nics(sys_root, addresses=addresses),
        hcas=hostfs.read_hcas(sys_root),
        driver=answers.driver,
        cuda_driver=answers.cuda_driver,
        ports=tuple(ports),
    )


class Disk(Frozen):
    """Free space at a place where the suite writes."""

    purpose: str
    path: Path
    free_mib: int  # available to an ordinary process


class Vitals(Frozen):
    """A machine's condition at one moment."""

    disks: tuple[Disk, ...]
    memlock_mib: int | None  # memory that a process may pin (ulimit -l); None when unlimited
    shm_mib: int | None
    # Cpufreq governors in use; empty if the kernel does not set clocks (most virtual machines).
    governors: tuple[str, ...]
    throttled_cores: int | None  # CPUs that heat has throttled since boot; None if the kernel does not count them
    load_average_1min: float
    nvidia_pci: tuple[str, ...]
    gpus: tuple[GpuHealth, ...]


def take_vitals(
    node: Node, *, images: Path | None, cache: Path, results: Path, sys_root: Path = Path("/"), nvml: Any | None = None
) -> Vitals:
    """Read this machine's condition.

    `images` is the engine's image store, None if it is not on this machine; `cache` is for wheels, `results` for records.
    """
    cpus = sys_root / "sys/devices/system/cpu"
    counts = [hostfs.read_int(path) for path in cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Vitals(
        disks=tuple(
            Disk(purpose=purpose, path=path, free_mib=free_mib(path))
            for purpose, path in (("images", images), ("cache", cache), ("results", results))
            if path is not None
        ),
        memlock_mib=None if soft_limit == resource.RLIM_INFINITY else soft_limit // 2**20,
        shm_mib=_size_mib(sys_root / "dev/shm"),
        governors=hostfs.governors(sys_root),
        throttled_cores=sum(1 for count in counts if count) if counts else None,
        load_average_1min=os.getloadavg()[0],
        nvidia_pci=hostfs.nvidia_pci_functions(sys_root),
        gpus=read_health(ask_nvml(nvml), node.gpus) if node.gpus else (),
    )


def _size_mib(path: Path) -> int | None:
    try:
        filesystem = os.statvfs(path)
    except OSError:
        return None
    return filesystem.f_blocks * filesystem.f_frsize // 2**20
