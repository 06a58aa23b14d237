"""`Transport`: what was asked of the wires, what carried the gradients, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from runner.interconnect.counted import Counted, CountedWire
from runner.interconnect.evidence import Evidence
from runner.request import Interconnect

# `process` is the memory of a single process, `ipoib` IP over InfiniBand: sockets, and no verbs.
Used = Literal[
    "none",
    "process",
    "loopback",
    "nvlink",
    "pcie",
    "shm",
    "ethernet",
    "ipoib",
    "infiniband",
    "roce",
    "unknown",
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


class Transport(BaseModel):
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

    model_config = ConfigDict(frozen=True, extra="forbid")

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
