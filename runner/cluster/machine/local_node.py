"""A machine as a `Node`: its cores, memory, GPUs and network ports, as far as a run can have them. Looks, and changes nothing.

The figures are what CPU affinity, control groups and CUDA_VISIBLE_DEVICES leave, not what is on the box.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cluster.machine import hostfs, snapshot
from runner.cluster.machine.cgroup import read_limits, usable_cores
from runner.cluster.machine.nvml import NvmlAnswers, ask_nvml, read_gpus
from runner.core.node import Node

# Enough for every rank that one job has on a node, and some beside.
PORTS = 64


def inspect_local(
    *, sys_root: Path = Path("/"), nvml: Any | None = None, affinity: Iterable[int] | None = None
) -> Node:
    """Describe the machine that this process runs on; tests give a made-up tree, a module with nvidia-ml-py's interface, and CPU ids."""
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
    """Describe a machine, this one or another by its snapshot, from its files and what else was asked there.

    `affinity` are the CPU ids that its scheduler allows, `visible` is its CUDA_VISIBLE_DEVICES, `ports` were free.
    """
    limits = read_limits(sys_root)
    allowed = frozenset(affinity)
    cores = sorted(allowed if limits.cpus is None else allowed & limits.cpus)
    inventory = read_gpus(answers, sys_root=sys_root, visible=visible)
    memory = [size for size in (hostfs.memory_total_bytes(sys_root), limits.memory_bytes) if size is not None]
    return Node(
        name=name,
        cores=tuple(cores[: usable_cores(len(cores), limits.cpu_quota)]),
        cpu_quota=limits.cpu_quota,
        cpu_model=hostfs.first_processor(sys_root).get("model name"),
        memory_mib=min(memory, default=0) // 2**20,
        gpus=inventory.gpus,
        gpu_reason=inventory.reason,
        nics=hostfs.read_nics(sys_root, addresses=addresses),
        hcas=hostfs.read_hcas(sys_root),
        driver=inventory.driver,
        cuda_driver=inventory.cuda_driver,
        ports=tuple(ports),
    )
