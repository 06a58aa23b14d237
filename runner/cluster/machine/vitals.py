"""The state of this machine that moves a benchmark and that its inventory does not show: room, limits, clocks, load.

Reads only; `doctor` judges what is read here.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from runner.cluster.machine import hostfs
from runner.cluster.machine.nvml import GpuHealth, ask_nvml, read_health
from runner.core.cache import free_mib
from runner.core.frozen import Frozen
from runner.core.node import Node


class Disk(Frozen):
    """Free room where the suite writes.

    Attributes:
        purpose: "images", "cache" or "results".
        free_mib: what an ordinary process may still write.
    """

    purpose: str
    path: Path
    free_mib: int


class Vitals(Frozen):
    """State of the machine at one moment.

    Attributes:
        memlock_mib: memory that a process may pin (ulimit -l); None when unlimited.
        shm_mib: size of /dev/shm; None when there is none.
        governors: cpufreq governors in use; empty where the kernel does not set clocks (most virtual machines).
        throttled_cores: CPUs that were slowed down by heat since boot; None where the kernel does not count.
        load_average_1min: runnable processes, averaged over the last minute.
        nvidia_pci: PCI addresses of NVIDIA GPUs, whether or not a driver holds them.
    """

    disks: tuple[Disk, ...]
    memlock_mib: int | None
    shm_mib: int | None
    governors: tuple[str, ...]
    throttled_cores: int | None
    load_average_1min: float
    nvidia_pci: tuple[str, ...]
    gpus: tuple[GpuHealth, ...]


def take_vitals(
    node: Node, *, images: Path | None, cache: Path, results: Path, sys_root: Path = Path("/"), nvml: Any | None = None
) -> Vitals:
    """Read the state of this machine.

    `images` is where the engine keeps images, None when that is not on this machine; wheels are in `cache`, records go to `results`.
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
