"""Types of a machine of a job: cores, memory, GPUs, network interfaces and RDMA ports. `cluster` fills them; nothing is inspected here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.request import Device
from runner.core.wire import NodeWires

NicKind = Literal["ethernet", "wireless", "infiniband", "bond", "loopback", "virtual", "other"]


class Nic(Frozen):
    """A network interface; `state` is the kernel's operstate (a loopback's is always `unknown`), `mtu` is in bytes.

    `speed_mbit` is None if the driver reports none (virtio, veth, a link that is down).
    """

    name: str
    state: str
    speed_mbit: int | None
    mtu: int
    kind: NicKind
    address: str | None = None


class Hca(Frozen):
    """One port of an RDMA adapter; the link layer is InfiniBand, or Ethernet for RoCE; the rate is the kernel's text: "400 Gb/sec (4X NDR)"."""

    name: str
    port: int
    state: str
    link_layer: str
    rate: str


class Gpu(Frozen):
    """One NVIDIA GPU that this process may use; `index` is NVML's, in PCI bus order, as in nvidia-smi and CDI names."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    compute_capability: str
    nvlinks: int = 0


# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h) that mean that a GPU runs slower than its settings allow.
SLOWDOWNS: Final = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class Processor(Frozen):
    """An x86 processor, with family and model in decimal as CPUID reports them; other architectures report neither vendor nor family.

    `core_threads` are the logical CPUs of each physical core in the kernel's list format; empty if the kernel does not report them.
    """

    vendor: str
    family: int
    model: int
    flags: tuple[str, ...]
    core_threads: tuple[str, ...]


class Node(Frozen):
    """The part of one machine that this process may use."""

    name: str
    cores: tuple[int, ...]  # ids of the logical CPUs that it may run on, at most as many as `cpu_quota` can keep busy
    cpu_quota: float | None  # limit of the control groups, in cores; None without one
    cpu_model: str | None
    memory_mib: int  # installed, or the control groups' limit if that is lower
    counts_energy: bool  # whether its kernel counts the processors' energy, possibly readable by root only
    gpus: tuple[Gpu, ...]
    gpu_reason: str | None  # why there are no GPUs
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    driver: str | None
    cuda_driver: str | None  # the newest CUDA version that the driver supports
    ports: tuple[int, ...]  # TCP ports for the rendezvous of ranks; they were free when the node was inspected


@dataclass(frozen=True)
class Member:
    """A node that a request may use; `network` is from the hosts file, `slots` its usable devices, None for all."""

    node: Node
    network: NodeWires
    slots: int | None = None

    def devices(self, device: Device) -> int:
        """Return the number of its devices that a job may use."""
        there = len(self.node.gpus) if device == "gpu" else len(self.node.cores)
        return there if self.slots is None else min(there, self.slots)
