"""A machine of a job, typed: its cores, memory, GPUs, network interfaces and RDMA ports. `cluster` reads them; nothing is looked up here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.request import Device
from runner.core.wire import NodeWires

NicKind = Literal["ethernet", "wireless", "infiniband", "bond", "loopback", "virtual", "other"]


class Nic(Frozen):
    """A network interface.

    Attributes:
        state: the kernel's operstate: up, down, unknown (loopback is always unknown).
        speed_mbit: link speed in Mbit/s; None where the driver does not know one (virtio, veth, a link that is down).
        mtu: largest packet in bytes.
        address: the first IPv4 address; None without one.
    """

    name: str
    state: str
    speed_mbit: int | None
    mtu: int
    kind: NicKind
    address: str | None = None


class Hca(Frozen):
    """One port of an RDMA adapter (InfiniBand, RoCE).

    Attributes:
        state: ACTIVE, INIT, DOWN, ...
        link_layer: InfiniBand, or Ethernet for RoCE.
        rate: as the kernel words it, with its unit: "400 Gb/sec (4X NDR)".
    """

    name: str
    port: int
    state: str
    link_layer: str
    rate: str


class Gpu(Frozen):
    """One NVIDIA GPU that this process may use.

    Attributes:
        index: NVML's index, in PCI bus order: what nvidia-smi shows and CDI names count by.
        compute_capability: "9.0"
        nvlinks: active NVLink connections.
    """

    index: int
    uuid: str
    name: str
    memory_mib: int
    compute_capability: str
    nvlinks: int = 0


# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h) that make a GPU slower than its settings say.
SLOWDOWNS: Final = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class Processor(Frozen):
    """An x86 processor; others name neither vendor nor family.

    Attributes:
        vendor: `GenuineIntel`, `AuthenticAMD`, ...
        family, model: as CPUID has them, in decimal.
        flags: those of `VECTOR_FLAGS` that it has.
        core_threads: logical CPUs of each physical core, in the kernel's list format; empty where the kernel does not tell.
    """

    vendor: str
    family: int
    model: int
    flags: tuple[str, ...]
    core_threads: tuple[str, ...]


class Node(Frozen):
    """One machine, as far as this process may use it.

    Attributes:
        cores: ids of the logical CPUs that this process may run on, no more of them than `cpu_quota` can keep busy.
        cpu_quota: cores' worth of CPU time that the control groups allow; None without a quota.
        memory_mib: installed memory, or the control groups' limit where that is lower.
        gpu_reason: why there are no GPUs; None when there are.
        cuda_driver: the newest CUDA version that the driver speaks.
        ports: TCP ports that were free a moment ago, where the ranks of a job find each other.
    """

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
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Member:
    """A node that a request may use.

    Attributes:
        said: what the hosts file says of its wires.
        slots: devices of it that a job may use; None for all that it has.
    """

    node: Node
    said: NodeWires
    slots: int | None = None

    def devices(self, device: Device) -> int:
        """How many devices a job may have of it."""
        there = len(self.node.gpus) if device == "gpu" else len(self.node.cores)
        return there if self.slots is None else min(there, self.slots)
