"""How many bytes the gradients need on each kind of wire in the measured windows, and how many its counters saw. Pure.

NVLink is counted by NVML, a GPU at a time; network interfaces, RDMA ports and the loopback by the kernel; PCIe by the samplers beside the
run, as rates of GPM or DCGM, so that it is a bound and no count. Shared memory and the memory of a process have no counter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from runner.analysis.interconnect.evidence import NodeSent
from runner.core.events import Event, RunStart, Window
from runner.core.transport import NAMES, Counted, CountedWire, Evidence, carrier, size
from runner.core.trial import Trial

# Bytes of a gradient on the wire at the least: fp16.
LEAST_GRADIENT_BYTES: Final = 2


def gradient_bytes(events: Sequence[Event]) -> int | None:
    """What each device hands over to be exchanged in one step, in bytes; None where the program does not tell."""
    return next((event.gradient_bytes for event in events if isinstance(event, RunStart)), None)


def measured_iterations(trial: Trial, events: Sequence[Event]) -> int:
    """Iterations between the two readings of the counters; those that were asked for where no window was told."""
    ranks: Counter[int] = Counter()
    for event in events:
        if isinstance(event, Window):
            ranks[event.rank] += event.iterations
    return min(ranks.values(), default=trial.iterations)


def handed_over(trial: Trial, events: Sequence[Event]) -> int | None:
    """What each device hands over in the measured windows, in bytes; None where the program tells nothing of its network.

    Every device of an exchange sends that much and receives as much, whatever the algorithm: its own part has to reach the others, and
    the sum has to reach it. Where the program tells only its parameters, they are counted as fp16.
    """
    start = next((event for event in events if isinstance(event, RunStart)), None)
    if start is None:
        return None
    return (start.gradient_bytes or start.parameters * LEAST_GRADIENT_BYTES) * measured_iterations(trial, events)


def gradient_factor(trial: Trial) -> float:
    """Bytes that all nodes together send in a step ÷ bytes of the gradients; 0 on one node.

    A ring all-reduce over n ranks sends 2(n-1)/n of the gradients along each of its edges (nccl-tests, doc/PERFORMANCE.md), and of the
    edges one leaves each of the N nodes: 2N(n-1)/n. NCCL may take a tree instead, which sends 2(N-1), the same for a rank a node.

    Parameter servers, one on each of N nodes, hold 1/N of the weights each: each of the w workers sends its gradients to and gets
    the weights from the other N-1, 2w(N-1)/N in all.
    """
    nodes, ranks = len(trial.placement), trial.processes
    if nodes < 2:  # noqa: PLR2004 - nothing leaves the only one
        return 0.0
    if carrier(trial) == "ps-lite":
        return 2 * ranks * (nodes - 1) / nodes
    return 2 * nodes * (ranks - 1) / ranks


def least_factor(trial: Trial) -> float:
    """The same of the algorithm that sends least: `gradient_factor`, or what a tree between the nodes sends."""
    return min(gradient_factor(trial), 2.0 * (len(trial.placement) - 1))


def least_sent(trial: Trial, events: Sequence[Event]) -> int | None:
    """Bytes that have to cross between the nodes, or between the devices of one, in the measured windows; None as in `handed_over`.

    No all-reduce over N of them gets by with less than 2(N-1) times the gradients (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009). Parameter servers beside their workers send 2N times the gradients.
    """
    own = handed_over(trial, events)
    parties = len(trial.placement) if len(trial.placement) > 1 else trial.world_size
    return None if own is None else 2 * (parties - 1) * own


def in_words(counts: Sequence[Counted]) -> str:
    """Several wires: `NVLink carried 24.9 GB a GPU (the gradients need 16.6 GB), PCIe 31 MB a GPU (11.6 GB)`."""
    first, *others = counts
    told = [f"{NAMES[first.wire]} carried {first.amount} (the gradients need {size(first.needed)})"]
    return ", ".join([*told, *(f"{NAMES[one.wire]} {one.amount} ({size(one.needed)})" for one in others)])


def nvlink(evidence: Evidence, own: Collection[str], *, devices: int, needed: int) -> Counted | None:
    """NVLink at each GPU of a run; None where one of its `devices` was not counted.

    `own` are UUIDs of the GPUs that the run used; any, if they are not known. `needed`: bytes that the gradients need at each.
    """
    both = [(link.rx_bytes, link.tx_bytes) for link in evidence.nvlink if not own or link.gpu in own]
    if len(both) < max(devices, 1):
        return None
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
