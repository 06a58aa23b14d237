"""What carries a trial's gradients between devices: the library, and the requested and used `Transport` with its byte counts."""

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

# Libraries that use only sockets: IP over InfiniBand, and plain Ethernet on a RoCE adapter.
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
    """Return the library that moves the gradients, from strategy, Horovod or kvstore, processes and devices."""
    if trial.world_size == 1:
        return "none"
    if trial.horovod:
        return trial.horovod.operations
    if trial.kvstore and trial.kvstore != "nccl":
        return "ps-lite" if trial.processes > 1 else "memory"
    strategy = STRATEGIES[trial.strategy]
    return "nccl" if trial.device == "gpu" and not strategy.parameter_servers else strategy.between_cpus


CountedWire = Literal["nvlink", "pcie", "rdma", "sockets", "loopback"]

# A wire carried the gradients if it counted this fraction of their bytes. Network cards update the kernel's counters up to 2 s late; PCIe
# is a mean of samples. NVLink and the loopback counted a fraction of at least 1.000 in every run in results/.
CARRIED_FRACTION: Final[Mapping[CountedWire, float]] = {
    "nvlink": 0.9,
    "loopback": 0.9,
    "rdma": 0.5,
    "sockets": 0.5,
    "pcie": 0.5,
}

# The fraction that barriers, broadcasts of buffers and keep-alives may move over a wire that should carry no gradients. In the runs over
# other wires in results/h200/wires NVLink counted a fraction of less than 0.0001.
STRAY_FRACTION: Final = 0.1

NAMES: Final[Mapping[CountedWire, str]] = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "rdma": "RDMA ports",
    "sockets": "interfaces",
    "loopback": "the loopback",
}

# The place at which each wire is counted; there is only one loopback.
_PLACES: Final[Mapping[CountedWire, str]] = {"nvlink": "GPU", "pcie": "GPU", "rdma": "node", "sockets": "node"}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Counted(Frozen):
    """Bytes that one kind of wire moved in the measured windows, from the counters at each place (GPU, node or loopback)."""

    wire: CountedWire
    places: int  # number of counted places
    least: int  # at the place with the least, in its more used direction; for NVLink in the less used, since gradients go both ways
    most: int  # at the place with the most, in its more used direction
    sent: float  # mean over places of what each sent
    needed: int  # the least that the gradients need at each place
    share: float = 1.0  # counted part of the measured time; below 1 only for samplers' figures

    @property
    def carried(self) -> bool:
        """Whether every place moved the gradients."""
        return self.least >= CARRIED_FRACTION[self.wire] * self.needed

    @property
    def found(self) -> bool:
        """Whether any place moved more than stray traffic."""
        return self.most > STRAY_FRACTION * self.needed

    @property
    def amount(self) -> str:
        """The moved bytes as text: `24.8 GB to 24.9 GB a GPU`."""
        place = f" a {_PLACES[self.wire]}" if self.wire in _PLACES else ""
        return " to ".join(dict.fromkeys((size(self.least), size(self.most)))) + place


def size(count: float) -> str:
    """Format bytes with three significant digits and a decimal prefix: `24.9 GB`."""
    power = min(len(_UNITS) - 1, max(0, math.floor(math.log10(count) / 3))) if count >= 1 else 0
    return f"{float(f'{count / 1000**power:.3g}'):g} {_UNITS[power]}"


class InterfaceTraffic(Frozen):
    """Bytes over a network interface of a node in the measured windows, as one rank read its counters."""

    rank: int
    interface: str
    rx_bytes: int
    tx_bytes: int
    node: str | None = None


class PortTraffic(Frozen):
    """Bytes over a port of a node's RDMA adapter (`mlx5_0:1`) in the measured windows; RDMA bypasses the network interfaces."""

    node: str | None
    port: str
    link_layer: str
    rx_bytes: int
    tx_bytes: int


class NvlinkTraffic(Frozen):
    """Bytes over all NVLinks of one GPU, named by its UUID, in the measured windows."""

    gpu: str
    rx_bytes: int
    tx_bytes: int


class PcieTraffic(Frozen):
    """Bytes over PCIe of one GPU, named by its UUID, in the sampled windows: `share` of the measured time."""

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
    """What counters and logs report about the transport of a run."""

    traffic: tuple[InterfaceTraffic, ...]
    nccl_lines: tuple[str, ...]
    ports: tuple[PortTraffic, ...] = ()
    nvlink: tuple[NvlinkTraffic, ...] = ()
    pcie: tuple[PcieTraffic, ...] = ()
    peers: tuple[PeerTraffic, ...] = ()


# `process` is the memory of a single process, `ipoib` IP over InfiniBand: sockets without verbs.
Used = Literal[
    "none", "process", "loopback", "nvlink", "pcie", "shm", "ethernet", "ipoib", "infiniband", "roce", "unknown"
]

# The wire whose counters count a transport. GPUs access shared memory over PCIe; shared memory of CPUs has no counter.
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
    """The requested transport and the one that carried the gradients.

    The figures between nodes (`interfaces` to `expected_bytes_per_step`) are empty or None on one node, and without evidence.

    Attributes:
        counted: byte counts of each kind of wire that is relevant to where the gradients went.
        contradiction: one sentence on counters that contradict the library, with wires and bytes; None if all agree.
        unproved: why the used transport is unknown; None if it is known.
        interfaces: by node, the network interface that carried the gradients.
        hcas: ports of RDMA adapters that carried them.
        gradient_bytes: bytes that each device contributes to the exchange of one step.
        sent_bytes_per_step: by node, bytes sent over those interfaces or ports, including headers.
        expected_bytes_per_step: bytes that all nodes together send for these gradients by the algorithm (`gradient_factor`).
        emulated: the emulated part, for titles and tables; None for real machines on unshaped links.
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
        """The byte counts of the used wire; None if it has no counter."""
        wire = _COUNTED_BY.get(self.used)
        return next((count for count in self.counted if count.wire == wire), None)

    @property
    def interface(self) -> str | None:
        """The interface's name; several if the nodes name it differently."""
        return ", ".join(dict.fromkeys(self.interfaces.values())) or None

    @property
    def label(self) -> str:
        """The transport in titles and tables: `ethernet`, `ethernet (emulated 1gbit)`."""
        return f"{self.used} ({self.emulated})" if self.emulated else self.used
