"""What a library says of its wires within one node, held against the counters of every wire. Pure.

Proof is a conjunction. A library that names one wire while a faster one moved the gradients, or while the named one did not, is
contradicted. What has no counter of its own (shared memory, PCIe where no sampler looked) is proved when the library says so and every
other wire was counted, and idle. Where such a counter is missing the transport is `unknown`, and it is said what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from runner.analysis.interconnect import volume
from runner.analysis.interconnect.evidence import Channels, NodeSent, Via
from runner.core import transport
from runner.core.transport import IP_ONLY, LIBRARIES, Carrier, Counted, CountedWire, Evidence, Used, carrier
from runner.core.trial import Trial

# By wire that is there and that the library could use; None where its bytes were not counted.
Counts = Mapping[CountedWire, Counted | None]

_Claim = Literal["nvlink", "pcie", "shm", "loopback", "infiniband", "roce"]
# What is faster than the wire that is claimed: not even a part of the gradients may have gone there.
_FASTER: Final[Mapping[_Claim, tuple[CountedWire, ...]]] = {
    "nvlink": (),
    "pcie": ("nvlink",),
    "shm": ("nvlink",),
    "infiniband": ("nvlink",),
    "roce": ("nvlink",),
    "loopback": ("nvlink", "rdma"),
}
_OWN: Final[Mapping[_Claim, CountedWire]] = {
    "nvlink": "nvlink",
    "loopback": "loopback",
    "infiniband": "rdma",
    "roce": "rdma",
}


@dataclass(frozen=True)
class Observed:
    """A run as far as its wires go; bytes are None where the program does not tell how large its gradients are."""

    trial: Trial
    channels: Channels
    evidence: Evidence
    sent: Mapping[str | None, NodeSent]  # by node; the only one is None
    needed: int | None  # bytes that each device hands over in the measured windows
    least: int | None  # bytes that have to cross between the nodes, or the devices of one
    own: frozenset[str]  # UUIDs of the GPUs that the run used; empty where they are not known
    linked: bool  # whether any of them has an NVLink; True where that is not known
    iterations: int  # between the readings of the counters

    @property
    def carrier(self) -> Carrier:
        """What carries the gradients."""
        return carrier(self.trial)

    @property
    def library(self) -> str:
        """Its name."""
        return LIBRARIES[self.carrier]

    @property
    def verbs(self) -> Literal["infiniband", "roce"]:
        """What RDMA is here: as NCCL says, else by the ports' link layer."""
        layers = self.channels.layers or {port.link_layer for port in self.evidence.ports}
        return "roce" if layers & {"RoCE", "Ethernet"} else "infiniband"


@dataclass(frozen=True)
class Verdict:
    """What was used and the counts that tell, with the fields of a `Transport`.

    `contradiction` says what speaks against what the library says, `unproved` what is missing to know.
    """

    used: Used
    counted: tuple[Counted, ...] = ()
    contradiction: str | None = None
    unproved: str | None = None
    interfaces: Mapping[str, str] = field(default_factory=dict)
    hcas: tuple[str, ...] = ()
    sent_bytes_per_step: Mapping[str, float] = field(default_factory=dict)


def unproved(why: str, *counts: Counted | None) -> Verdict:
    """Nobody knows what was used."""
    return Verdict("unknown", known(*counts), unproved=why)


def known(*counts: Counted | None) -> tuple[Counted, ...]:
    """The wires that were counted."""
    return tuple(count for count in counts if count)


def within_a_node(run: Observed) -> Verdict:
    """Judge a run on one node."""
    if run.carrier == "none":
        return Verdict("none")
    if run.carrier == "memory" and run.trial.device == "cpu":
        return Verdict("process")  # one process has nobody to send to
    if run.needed is None or run.least is None:
        return unproved("the program does not tell how large its gradients are")
    counts = _counts(run, needed=run.needed, least=run.least)
    claim = _claim(run, counts)
    if claim == "p2p":
        links = counts.get("nvlink")
        if links and links.found and not links.carried:
            said = f"{run.library} copies from GPU to GPU, and {volume.in_words([links])}"
            return unproved(said, *counts.values())
        # Without a count, NVLink is what has to be proved.
        claim = "pcie" if "nvlink" not in counts or (links and not links.carried) else "nvlink"
    if claim is None:
        return unproved(f"{run.library} names no wire that is known here", *counts.values())
    return _held_against(run, claim, counts)


def _counts(run: Observed, *, needed: int, least: int) -> Counts:
    devices = run.trial.world_size
    found: dict[CountedWire, Counted | None] = {}
    if run.trial.device == "gpu":
        links = volume.nvlink(run.evidence, run.own, devices=devices, needed=needed)
        if links or run.linked:
            found["nvlink"] = links
        if slots := volume.pcie(run.evidence, run.own, devices=devices, needed=needed):
            found["pcie"] = slots
    if run.carrier not in IP_ONLY and run.evidence.ports:
        found["rdma"] = volume.of_nodes("rdma", [sum(port.tx_bytes for port in run.evidence.ports)], needed=needed)
    found["loopback"] = volume.loopback(run.sent.values(), needed=least)
    return found


def _claim(run: Observed, counts: Counts) -> _Claim | Literal["p2p"] | None:
    """What the library says, or the only wire that it can use; of NCCL's channels the slowest, as the ring is as fast as that one."""
    if run.carrier in IP_ONLY:
        return "loopback"
    if run.carrier == "memory":
        return "p2p"
    if run.carrier == "mpi":  # says nothing, and was left shared memory where nothing else carried them
        told: tuple[tuple[CountedWire, _Claim], ...] = (("loopback", "loopback"), ("rdma", run.verbs))
        return next((claim for wire, claim in told if (count := counts.get(wire)) and count.carried), "shm")
    slowest_first: tuple[tuple[Via, _Claim | Literal["p2p"] | None], ...] = (
        ("other", None),
        ("socket", "loopback"),  # whichever the interface: the kernel sends to itself over the loopback
        ("verbs", run.verbs),
        ("shm", "shm"),
        ("p2p", "p2p"),
        ("nvls", "p2p"),
    )
    return next((claim for via, claim in slowest_first if via in run.channels.via), None)


def _held_against(run: Observed, claim: _Claim, counts: Counts) -> Verdict:
    """Hold what is claimed against every counter that would have to agree."""
    faster, own = _FASTER[claim], _OWN.get(claim)
    counts = {**counts, own: counts.get(own)} if own else counts
    found = known(*counts.values())
    says = f"{run.library} says {claim}" if run.carrier == "nccl" else f"{run.library} can only have used {claim}"
    others = faster if own else tuple(wire for wire in counts if wire != "pcie")
    for wire in (*others, *((own,) if own else ())):
        if wire in counts and counts[wire] is None:
            of = f" of all {run.trial.world_size} GPUs" if wire == "nvlink" else ""
            return unproved(f"{says}, and the bytes of {transport.NAMES[wire]}{of} were not counted", *found)
    by_wire = {count.wire: count for count in found}
    mine = [by_wire[wire] for wire in (own or "pcie",) if wire in by_wire]
    for wire, other in ((wire, by_wire[wire]) for wire in others if wire in by_wire):
        if other.carried or (other.found and wire in faster):
            used = _NAMED.get(wire, run.verbs) if other.carried else "unknown"
            return Verdict(used, found, contradiction=against(says, other, *mine))
        if other.found:
            return unproved(f"{says}, and {volume.in_words([other])}", *found)
    if any(not one.carried for one in mine):
        return Verdict("unknown", found, contradiction=against(says, *mine))
    return Verdict(claim, found)


_NAMED: Final[Mapping[CountedWire, Used]] = {"nvlink": "nvlink", "loopback": "loopback"}


def against(says: str, *found: Counted) -> str:
    """What the counters say against what is claimed, both wires and their bytes in one sentence."""
    return f"{says}, but {volume.in_words(found)}"
