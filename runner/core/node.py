"""A machine of a job, typed: its cores, memory, GPUs, network interfaces and RDMA ports. `cluster` reads them; nothing is looked up here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.request import Device
from runner.core.wire import NodeWires

NicKind = Literal["ethernet", "wireless", "infiniband", "bond", "loopback", "virtual", "other"]


class Nic(Frozen):
    """A network interface; `state` is the kernel's operstate (loopback's is always unknown), `mtu` in bytes.

    `speed_mbit` is None where the driver does not know one (virtio, veth, a link that is down).
    """

    name: str
    state: str
    speed_mbit: int | None
    mtu: int
    kind: NicKind
    address: str | None = None


class Hca(Frozen):
    """One port of an RDMA adapter; its link layer is InfiniBand, or Ethernet for RoCE, its rate as the kernel words it: "400 Gb/sec (4X NDR)"."""

    name: str
    port: int
    state: str
    link_layer: str
    rate: str


class Gpu(Frozen):
    """One NVIDIA GPU that this process may use; `index` is NVML's, in PCI bus order, as nvidia-smi shows it and CDI names count."""

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
    """An x86 processor, family and model in decimal as CPUID has them; others name neither vendor nor family.

    `core_threads` are the logical CPUs of each physical core, in the kernel's list format; empty where the kernel does not tell.
    """

    vendor: str
    family: int
    model: int
    flags: tuple[str, ...]
    core_threads: tuple[str, ...]


class Node(Frozen):
    """One machine, as far as this process may use it."""

    name: str
    cores: tuple[int, ...]  # ids of the logical CPUs that it may run on, no more than `cpu_quota` can keep busy
    cpu_quota: float | None  # cores' worth of CPU time that the control groups allow
    cpu_model: str | None
    memory_mib: int  # installed, or the control groups' limit where that is lower
    counts_energy: bool  # whether its kernel counts what its processors use, though maybe not for everyone to read
    gpus: tuple[Gpu, ...]
    gpu_reason: str | None  # why there are no GPUs
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    driver: str | None
    cuda_driver: str | None  # the newest CUDA version that the driver speaks
    ports: tuple[int, ...]  # of TCP, that were free a moment ago, where the ranks of a job find each other


@dataclass(frozen=True)
class Member:
    """A node that a request may use; `said` is what the hosts file says of its wires, `slots` how many of its devices, None for all."""

    node: Node
    said: NodeWires
    slots: int | None = None

    def devices(self, device: Device) -> int:
        """How many devices a job may have of it."""
        there = len(self.node.gpus) if device == "gpu" else len(self.node.cores)
        return there if self.slots is None else min(there, self.slots)
