"""What carries the gradients of a trial between its devices: the library, and the `Transport` that was asked for and used, with the bytes that counters saw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.request import Interconnect
from runner.core.strategies import STRATEGIES
from runner.core.trial import Trial

# `memory`: one process drives all devices and copies between them.
Carrier = Literal["none", "memory", "nccl", "gloo", "mpi", "ps-lite", "grpc"]

# These know sockets and nothing else: over InfiniBand they speak IP, and over RoCE plain Ethernet.
IP_ONLY: Final[frozenset[Carrier]] = frozenset({"gloo", "ps-lite", "grpc"})
LIBRARIES: Final[Mapping[Carrier, str]] = {
    "none": "the process",
    "memory": "the framework",
    "nccl": "NCCL",
    "gloo": "Gloo",
    "mpi": "Open MPI",
    "ps-lite": "ps-lite",
    "grpc": "gRPC",
}


def carrier(trial: Trial) -> Carrier:
    """The library that moves the gradients, which follows from strategy, store and device."""
    if trial.world_size == 1:
        return "none"
    if trial.horovod:
        return trial.horovod.operations
    if trial.strategy == "kvstore" and trial.kvstore != "nccl":
        return "ps-lite" if trial.processes > 1 else "memory"
    if trial.device == "gpu" and trial.strategy != "ps":  # whose gradients go through host memory
        return "nccl"
    return STRATEGIES[trial.strategy].between_cpus


CountedWire = Literal["nvlink", "pcie", "rdma", "sockets", "loopback"]

# Of the bytes that the gradients need: so much shows that they went there. Cards keep their own counters, and tell the kernel as late
# as 2 s after; PCIe is the mean of samples. NVLink and the loopback counted at least 1.000 of it in every run in results/.
ENOUGH: Final[Mapping[CountedWire, float]] = {"nvlink": 0.9, "loopback": 0.9, "rdma": 0.5, "sockets": 0.5, "pcie": 0.5}

# Of the same, what may cross a wire on which no gradient was claimed to go: barriers, buffers that are broadcast, a connection kept alive.
# In the runs over other wires in results/h200/wires NVLink counted less than 0.0001 of it.
STRAY: Final = 0.1

NAMES: Final[Mapping[CountedWire, str]] = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "rdma": "RDMA ports",
    "sockets": "interfaces",
    "loopback": "the loopback",
}

# Where each is counted; the loopback is one.
_PLACES: Final[Mapping[CountedWire, str]] = {"nvlink": "GPU", "pcie": "GPU", "rdma": "node", "sockets": "node"}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Counted(Frozen):
    """Bytes that one kind of wire moved in the measured windows, by its counters, at each of the places that have one."""

    wire: CountedWire
    places: int  # GPUs, nodes or loopbacks that were counted
    least: int  # where least moved; of NVLink in the direction that moved less, since gradients go both ways
    most: int  # where, and in the direction in which, most moved
    sent: float  # what left a place, mean over the places
    needed: int  # what the gradients need at each place at the least
    share: float = 1.0  # of the measured time, what the counts are of; all but those of samplers are of all of it

    @property
    def carried(self) -> bool:
        """Whether every place moved the gradients."""
        return self.least >= ENOUGH[self.wire] * self.needed

    @property
    def found(self) -> bool:
        """Whether a place moved more than a stray part of the gradients."""
        return self.most > STRAY * self.needed

    @property
    def amount(self) -> str:
        """What was moved, in words: `24.8 GB to 24.9 GB a GPU`."""
        place = f" a {_PLACES[self.wire]}" if self.wire in _PLACES else ""
        return " to ".join(dict.fromkeys((size(self.least), size(self.most)))) + place


def size(count: float) -> str:
    """Bytes in words with three significant digits, in powers of 1000: `24.9 GB`."""
    power = min(len(_UNITS) - 1, max(0, math.floor(math.log10(count) / 3))) if count >= 1 else 0
    return f"{float(f'{count / 1000**power:.3g}'):g} {_UNITS[power]}"


class InterfaceTraffic(Frozen):
    """Bytes that one rank saw cross a network interface of its node in the measured windows."""

    rank: int
    interface: str
    rx_bytes: int
    tx_bytes: int
    node: str | None = None


class PortTraffic(Frozen):
    """Bytes that crossed a port of a node's RDMA adapter (`mlx5_0:1`) in the measured windows; RDMA passes the interfaces by."""

    node: str | None
    port: str
    link_layer: str
    rx_bytes: int
    tx_bytes: int


class NvlinkTraffic(Frozen):
    """Bytes that crossed all NVLinks of one GPU, by its UUID, in the measured windows."""

    gpu: str
    rx_bytes: int
    tx_bytes: int


class PcieTraffic(Frozen):
    """Bytes that crossed the PCIe of one GPU, by its UUID, in the windows that samplers tell of: `share` of the measured time."""

    gpu: str
    rx_bytes: int
    tx_bytes: int
    share: float


class PeerTraffic(Frozen):
    """TCP connections of one rank with another node; `port` is the other end's."""

    rank: int
    node: str | None
    local: str
    remote: str
    port: int
    connections: int


class Evidence(Frozen):
    """What proves the transport."""

    traffic: tuple[InterfaceTraffic, ...]
    nccl_lines: tuple[str, ...]
    ports: tuple[PortTraffic, ...] = ()
    nvlink: tuple[NvlinkTraffic, ...] = ()
    pcie: tuple[PcieTraffic, ...] = ()
    peers: tuple[PeerTraffic, ...] = ()


# `process` is the memory of a single process, `ipoib` IP over InfiniBand: sockets, and no verbs.
Used = Literal[
    "none", "process", "loopback", "nvlink", "pcie", "shm", "ethernet", "ipoib", "infiniband", "roce", "unknown"
]

# Whose bytes are those of a transport; GPUs reach shared memory over PCIe, that of CPUs has no counter.
_COUNTED_BY: Final[Mapping[Used, CountedWire]] = {
    "nvlink": "nvlink",
    "pcie": "pcie",
    "shm": "pcie",
    "loopback": "loopback",
    "ethernet": "sockets",
    "ipoib": "sockets",
    "infiniband": "rdma",
    "roce": "rdma",
}


class Transport(Frozen):
    """The transport that was asked for and the one that carried the gradients.

    The figures between nodes (`interfaces` to `expected_bytes_per_step`) are empty or None on one node, and where the evidence does not
    tell.

    Attributes:
        counted: what the counters of each kind of wire say; of those that tell anything about where the gradients went.
        contradiction: what they say against the library, both wires and their bytes in one sentence; None where all of them agree.
        unproved: why it is not known what was used; None where it is.
        interfaces: by node, the network interface that carried the gradients.
        hcas: ports of RDMA adapters that did.
        gradient_bytes: what each device hands over to be exchanged in one step.
        sent_bytes_per_step: by node, what left it over those interfaces or ports, headers included.
        expected_bytes_per_step: what the algorithm has all nodes together send for these gradients (`gradient_factor`).
        emulated: what is not a real wire about it, for titles and tables; None for real machines on links as they are.
    """

    requested: Interconnect
    used: Used
    evidence: Evidence
    interfaces: Mapping[str, str] = {}
    hcas: tuple[str, ...] = ()
    gradient_bytes: int | None = None
    sent_bytes_per_step: Mapping[str, float] = {}
    expected_bytes_per_step: float | None = None
    emulated: str | None = None
    counted: tuple[Counted, ...] = ()
    contradiction: str | None = None
    unproved: str | None = None

    @property
    def own_count(self) -> Counted | None:
        """What was counted of the wire that was used; None where it has no counter."""
        wire = _COUNTED_BY.get(self.used)
        return next((count for count in self.counted if count.wire == wire), None)

    @property
    def interface(self) -> str | None:
        """The interface in words; several where the nodes name it differently."""
        return ", ".join(dict.fromkeys(self.interfaces.values())) or None

    @property
    def label(self) -> str:
        """For titles and tables: `ethernet`, `ethernet (emulated 1gbit)`."""
        return f"{self.used} ({self.emulated})" if self.emulated else self.used
