"""What the counters of every kind of wire say, beside what the gradients need there. Pure.

NVLink is counted by NVML, a GPU at a time; network interfaces, RDMA ports and the loopback by the kernel; PCIe by the samplers beside the
run, as rates of GPM or DCGM, so that it is a bound and no count. Shared memory and the memory of a process have no counter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from runner.interconnect.evidence import Evidence, NodeSent

CountedWire = Literal["nvlink", "pcie", "rdma", "sockets", "loopback"]

# Of the bytes that the gradients need: so much shows that they went there. Cards keep their own counters, and tell the kernel as late
# as 2 s after; PCIe is the mean of samples. NVLink and the loopback counted at least 1.000 of it in every run in results/.
ENOUGH: Final[Mapping[CountedWire, float]] = {
    "nvlink": 0.9,
    "loopback": 0.9,
    "rdma": 0.5,
    "sockets": 0.5,
    "pcie": 0.5,
}
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
_PLACES: Final[Mapping[CountedWire, str]] = {
    "nvlink": " a GPU",
    "pcie": " a GPU",
    "rdma": " a node",
    "sockets": " a node",
    "loopback": "",
}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Counted(BaseModel):
    """Bytes that one kind of wire moved in the measured windows, by its counters, at each of the places that have one.

    Attributes:
        places: how many GPUs, nodes or loopbacks were counted.
        least: bytes at the place that moved least; of NVLink in the direction that moved less, since gradients go both ways.
        most: bytes at the place and in the direction that moved most.
        sent: bytes that left a place, mean over the places.
        needed: bytes that the gradients need at each place at the least.
        share: of the measured time, what the counts are of; all but those of samplers are of all of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    wire: CountedWire
    places: int
    least: int
    most: int
    sent: float
    needed: int
    share: float = 1.0

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
        return " to ".join(dict.fromkeys((size(self.least), size(self.most)))) + _PLACES[self.wire]


def in_words(counts: Sequence[Counted]) -> str:
    """Several wires: `NVLink carried 24.9 GB a GPU (the gradients need 16.6 GB), PCIe 31 MB a GPU (11.6 GB)`."""
    first, *others = counts
    told = [f"{NAMES[first.wire]} carried {first.amount} (the gradients need {size(first.needed)})"]
    return ", ".join([*told, *(f"{NAMES[one.wire]} {one.amount} ({size(one.needed)})" for one in others)])


def size(count: float) -> str:
    """Bytes in words with three significant digits, in powers of 1000: `24.9 GB`."""
    power = min(len(_UNITS) - 1, max(0, math.floor(math.log10(count) / 3))) if count >= 1 else 0
    return f"{float(f'{count / 1000**power:.3g}'):g} {_UNITS[power]}"


def nvlink(evidence: Evidence, own: Collection[str], *, devices: int, needed: int) -> Counted | None:
    """NVLink at each GPU of a run; None where one of them was not counted.

    Args:
        evidence: what was counted.
        own: UUIDs of the GPUs that the run used; any, if they are not known.
        devices: how many there are.
        needed: bytes that the gradients need at each.
    """
    links = [link for link in evidence.nvlink if not own or link.gpu in own]
    if not links or len(links) < devices:
        return None
    both = [(link.rx_bytes, link.tx_bytes) for link in links]
    return _of_gpus("nvlink", both, least=min(map(min, both)), needed=needed)


def pcie(evidence: Evidence, own: Collection[str], *, devices: int, needed: int) -> Counted | None:
    """PCIe at each GPU of a run in the part of the measured time that the samplers tell of; None where they don't."""
    slots = [slot for slot in evidence.pcie if not own or slot.gpu in own]
    if not slots or len(slots) < devices:
        return None
    share = min(slot.share for slot in slots)
    both = [(slot.rx_bytes, slot.tx_bytes) for slot in slots]
    return _of_gpus("pcie", both, least=min(map(max, both)), needed=round(share * needed), share=share)


def _of_gpus(
    wire: CountedWire, both: Sequence[tuple[int, int]], *, least: int, needed: int, share: float = 1.0
) -> Counted:
    return Counted(
        wire=wire,
        places=len(both),
        least=least,
        most=max(map(max, both)),
        sent=math.fsum(sent for _, sent in both) / len(both),
        needed=needed,
        share=share,
    )


def loopback(nodes: Iterable[NodeSent], *, needed: int) -> Counted | None:
    """The loopback of the only node; None where nobody counted."""
    moved = [node.interfaces["lo"] for node in nodes if "lo" in node.interfaces]
    return of_nodes("loopback", [sum(moved)], needed=needed) if moved else None


def of_nodes(wire: CountedWire, moved: Sequence[int], *, needed: int) -> Counted:
    """A wire of which each node counted what it sent."""
    return Counted(
        wire=wire,
        places=len(moved),
        least=min(moved),
        most=max(moved),
        sent=math.fsum(moved) / len(moved),
        needed=needed,
    )
