"""What the counters of every kind of wire say, beside what the gradients need there. Pure.

NVLink is counted by NVML, a GPU at a time; network interfaces, RDMA ports and the loopback by the kernel; PCIe by the samplers beside the
run, as rates of GPM or DCGM, so that it is a bound and no count. Shared memory and the memory of a process have no counter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from runner.analysis.interconnect.evidence import NodeSent
from runner.core.transport import NAMES, Counted, CountedWire, Evidence, size


def in_words(counts: Sequence[Counted]) -> str:
    """Several wires: `NVLink carried 24.9 GB a GPU (the gradients need 16.6 GB), PCIe 31 MB a GPU (11.6 GB)`."""
    first, *others = counts
    told = [f"{NAMES[first.wire]} carried {first.amount} (the gradients need {size(first.needed)})"]
    return ", ".join([*told, *(f"{NAMES[one.wire]} {one.amount} ({size(one.needed)})" for one in others)])


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
