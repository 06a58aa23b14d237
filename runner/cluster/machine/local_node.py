"""What the machines offer: nodes with their cores, memory, GPUs and network ports. Looks, and changes nothing.

The figures are those that a run can have (CPU affinity, control groups, CUDA_VISIBLE_DEVICES), not those on the box.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from runner.cluster.hosts.snapshot import addresses as own_addresses
from runner.cluster.machine import hostfs
from runner.cluster.machine.cgroup import read_limits, usable_cores
from runner.cluster.machine.nvml import read_gpus
from runner.core.cache import free_mib
from runner.core.node import Gpu, Hca, Nic, Node

__all__ = ["Gpu", "Hca", "Nic", "Node", "free_mib", "free_ports", "inspect_local", "read_node"]

# Enough for every rank that one job has on a node, and some beside.
PORTS = 64


def inspect_local(
    *, sys_root: Path = Path("/"), nvml: Any | None = None, affinity: Iterable[int] | None = None
) -> Node:
    """Describe the machine that this process runs on.

    Args:
        sys_root: root of the /proc and /sys that are read; a made-up tree in tests.
        nvml: a module with nvidia-ml-py's interface; that library itself when None.
        affinity: CPU ids that the scheduler allows; asked of the kernel when None.
    """
    return read_node(
        name=socket.gethostname(),
        sys_root=sys_root,
        nvml=nvml,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        affinity=os.sched_getaffinity(0) if affinity is None else affinity,
        addresses=own_addresses() if sys_root == Path("/") else {},
        ports=free_ports(PORTS),
    )


def read_node(
    *,
    name: str,
    sys_root: Path,
    nvml: Any | None,
    visible: str | None,
    affinity: Iterable[int],
    addresses: Mapping[str, str],
    ports: Sequence[int],
) -> Node:
    """Describe a machine from its files and what else was asked there: this one, or another by its snapshot.

    Args:
        name: what the suite calls it.
        sys_root: root of its /proc and /sys.
        nvml: a module with nvidia-ml-py's interface; that library itself when None.
        visible: its CUDA_VISIBLE_DEVICES; None when that is not set.
        affinity: CPU ids that its scheduler allows.
        addresses: IPv4 address by interface.
        ports: TCP ports that were free.
    """
    limits = read_limits(sys_root)
    allowed = frozenset(affinity)
    cores = sorted(allowed if limits.cpus is None else allowed & limits.cpus)
    inventory = read_gpus(sys_root=sys_root, nvml=nvml, visible=visible)
    memory = [size for size in (hostfs.memory_total_bytes(sys_root), limits.memory_bytes) if size is not None]
    return Node(
        name=name,
        cores=tuple(cores[: usable_cores(len(cores), limits.cpu_quota)]),
        cpu_quota=limits.cpu_quota,
        cpu_model=hostfs.cpu_model(sys_root),
        memory_mib=min(memory, default=0) // 2**20,
        gpus=inventory.gpus,
        gpu_reason=inventory.reason,
        nics=hostfs.read_nics(sys_root, addresses=addresses),
        hcas=hostfs.read_hcas(sys_root),
        driver=inventory.driver,
        cuda_driver=inventory.cuda_driver,
        ports=tuple(ports),
    )


def free_ports(count: int) -> tuple[int, ...]:
    """TCP ports that no process of this machine holds, on any of its addresses.

    The kernel hands these out in turn and not again soon, so that they are still free when the ranks bind them.
    """
    with ExitStack() as held:
        found = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for probe in found:
            probe.bind(("", 0))
        return tuple(probe.getsockname()[1] for probe in found)
