"""Evidence → the transport that carried the gradients of a run. Pure.

Only what can be proved is claimed, and all evidence has to agree. Within a node, the library's report is checked against the counters of
every wire. If a faster wire than the reported one moved any of the gradients, or the reported one did not move them, the report is
contradicted and the run is invalid. A wire without a counter (shared memory, PCIe without samplers) is proved if the library reports it and
every other wire was counted, and idle. If a counter that has to agree is missing, the transport is `unknown`, with what is missing.

Between nodes, the gradients have to leave each node through counted interfaces or RDMA ports. If NCCL names the kind, these must have moved
as many bytes as the gradients have; otherwise the interface or port that did is the transport. A run in which none did, or in which a
faster wire did as well, is contradicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from runner.analysis.interconnect import evidence
from runner.analysis.interconnect.evidence import Channels, NodeSent, Via, collect, read_channels, sent_by_node
from runner.core import transport
from runner.core.events import Event, Nccl
from runner.core.node import Gpu, Nic
from runner.core.transport import (
    IP_ONLY,
    LIBRARIES,
    Carrier,
    Counted,
    CountedWire,
    Evidence,
    PcieTraffic,
    Transport,
    Used,
    carrier,
)
from runner.core.trial import Placed, Trial

# By wire that exists and that the library could use; None if its bytes were not counted.
Counts = Mapping[CountedWire, Counted | None]

_Claim = Literal["nvlink", "pcie", "shm", "loopback", "infiniband", "roce"]
# Wires faster than the claimed one: no part of the gradients may have crossed them.
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
    """The evidence of a run's wires; bytes are None if the program does not report the size of its gradients."""

    trial: Trial
    channels: Channels
    evidence: Evidence
    sent: Mapping[str | None, NodeSent]  # by node; a lone node is None
    contributed: int | None  # bytes that each device contributes in the measured windows
    must_cross: int | None  # bytes that must cross between the nodes, or the devices of one
    own: frozenset[str]  # UUIDs of the GPUs that the run used; empty if unknown, or on several nodes
    linked: bool  # whether any of them has an NVLink; True if unknown
    iterations: int  # between the readings of the counters

    @property
    def carrier(self) -> Carrier:
        """The library that carries the gradients."""
        return carrier(self.trial)

    @property
    def library(self) -> str:
        """Its name in sentences."""
        return LIBRARIES[self.carrier]

    @property
    def verbs(self) -> Literal["infiniband", "roce"]:
        """The kind of RDMA: as NCCL reports it, else by the ports' link layer."""
        layers = self.channels.layers or {port.link_layer for port in self.evidence.ports}
        return "roce" if layers & {"RoCE", "Ethernet"} else "infiniband"

    def judged(self, used: Used, *counts: Counted | None, **more: Any) -> Transport:
        """Make a `Transport` from what was used, the counts behind it, and more fields."""
        fields = {"requested": self.trial.interconnect, "evidence": self.evidence}
        return Transport(used=used, counted=known(*counts), **fields, **more)

    def unproved(self, why: str, *counts: Counted | None) -> Transport:
        """Make a `Transport` of unknown use, with the reason."""
        return self.judged("unknown", *counts, unproved=why)


def known(*counts: Counted | None) -> tuple[Counted, ...]:
    """The wires that were counted."""
    return tuple(count for count in counts if count)


def within_a_node(run: Observed) -> Transport:
    """Judge a run on one node."""
    if run.carrier == "none":
        return run.judged("none")
    if run.carrier == "memory" and run.trial.device == "cpu":
        return run.judged("process")  # a single process has no peer
    if run.contributed is None or run.must_cross is None:
        return run.unproved("the program does not tell how large its gradients are")
    counts = _counts(run, contributed=run.contributed, must_cross=run.must_cross)
    claim = _claim(run, counts)
    if claim == "p2p":
        links = counts.get("nvlink")
        if links and links.found and not links.carried:
            reason = f"{run.library} copies from GPU to GPU, and {evidence.in_words([links])}"
            return run.unproved(reason, *counts.values())
        # If NVLink exists but was not counted, it is what has to be proved.
        claim = "pcie" if "nvlink" not in counts or (links and not links.carried) else "nvlink"
    if claim is None:
        return run.unproved(f"{run.library} names no wire that is known here", *counts.values())
    return _check_claim(run, claim, counts)


def _counts(run: Observed, *, contributed: int, must_cross: int) -> Counts:
    devices = run.trial.world_size
    found: dict[CountedWire, Counted | None] = {}
    if run.trial.device == "gpu":
        links = evidence.nvlink(run.evidence, run.own, devices=devices, needed=contributed)
        if links or run.linked:
            found["nvlink"] = links
        if slots := evidence.pcie(run.evidence, run.own, devices=devices, needed=contributed):
            found["pcie"] = slots
    if run.carrier not in IP_ONLY and run.evidence.ports:
        found["rdma"] = evidence.node_traffic(
            "rdma", [sum(port.tx_bytes for port in run.evidence.ports)], needed=contributed
        )
    found["loopback"] = evidence.loopback(run.sent.values(), needed=must_cross)
    return found


def _claim(run: Observed, counts: Counts) -> _Claim | Literal["p2p"] | None:
    """What the library reports, or the only wire that it can use; of NCCL's channels the slowest, which limits the ring."""
    if run.carrier in IP_ONLY:
        return "loopback"
    if run.carrier == "memory":
        return "p2p"
    if run.carrier == "mpi":  # reports nothing; shared memory is what remains if no other wire carried them
        wires: tuple[tuple[CountedWire, _Claim], ...] = (("loopback", "loopback"), ("rdma", run.verbs))
        return next((claim for wire, claim in wires if (count := counts.get(wire)) and count.carried), "shm")
    slowest_first: tuple[tuple[Via, _Claim | Literal["p2p"] | None], ...] = (
        ("other", None),
        ("socket", "loopback"),  # whatever the interface: the kernel sends to itself over the loopback
        ("verbs", run.verbs),
        ("shm", "shm"),
        ("p2p", "p2p"),
        ("nvls", "p2p"),
    )
    return next((claim for via, claim in slowest_first if via in run.channels.via), None)


def _check_claim(run: Observed, claim: _Claim, counts: Counts) -> Transport:
    """Check a claimed wire against every counter that has to agree."""
    faster, own = _FASTER[claim], _OWN.get(claim)
    counts = {**counts, own: counts.get(own)} if own else counts
    found = known(*counts.values())
    report = f"{run.library} says {claim}" if run.carrier == "nccl" else f"{run.library} can only have used {claim}"
    others = faster if own else tuple(wire for wire in counts if wire != "pcie")
    for wire in (*others, *((own,) if own else ())):
        if wire in counts and counts[wire] is None:
            of = f" of all {run.trial.world_size} GPUs" if wire == "nvlink" else ""
            return run.unproved(f"{report}, and the bytes of {transport.NAMES[wire]}{of} were not counted", *found)
    by_wire = {count.wire: count for count in found}
    mine = [by_wire[wire] for wire in (own or "pcie",) if wire in by_wire]
    for wire, other in ((wire, by_wire[wire]) for wire in others if wire in by_wire):
        if other.carried or (other.found and wire in faster):
            used = _NAMED.get(wire, run.verbs) if other.carried else "unknown"
            return run.judged(used, *found, contradiction=contradiction_of(report, other, *mine))
        if other.found:
            return run.unproved(f"{report}, and {evidence.in_words([other])}", *found)
    if any(not one.carried for one in mine):
        return run.judged("unknown", *found, contradiction=contradiction_of(report, *mine))
    return run.judged(claim, *found)


_NAMED: Final[Mapping[CountedWire, Used]] = {"nvlink": "nvlink", "loopback": "loopback"}


def contradiction_of(report: str, *found: Counted) -> str:
    """State in one sentence how the counters contradict a claim, with wires and bytes."""
    return f"{report}, but {evidence.in_words(found)}"


# A bond, a VLAN or a bridge counts the bytes of the interface below it again: of interfaces with like traffic, the chosen one is named.
ALIKE: Final = 0.9
# InfiniBand ports count IP over InfiniBand again, with additional headers.
COUNTED_TWICE: Final = 1.1
# If nodes differ, the link is its weaker end.
_WEAKEST_FIRST: Final[tuple[Used, ...]] = ("unknown", "loopback", "ethernet", "ipoib", "roce", "infiniband")


def judge(
    trial: Trial,
    gpus: Sequence[Gpu],
    events: Sequence[Event],
    *,
    nics: Mapping[str, Sequence[Nic]] | None = None,
    one_machine: bool = False,
    pcie: Sequence[PcieTraffic] = (),
) -> Transport:
    """Turn evidence into the transport that carried the gradients of a run.

    `gpus` are those that it could use on its only node; `nics` are interfaces by node, without which an interface has the chosen wire's
    kind; with `one_machine`, wires between nodes are not real.
    """
    several = len(trial.placement) > 1
    own = () if several else gpus[trial.first_device : trial.first_device + trial.world_size]
    run = Observed(
        trial=trial,
        channels=read_channels(event.lines for event in events if isinstance(event, Nccl)),
        evidence=collect(events, pcie),
        sent=sent_by_node(events),
        contributed=evidence.contributed_bytes(trial, events),
        must_cross=evidence.minimum_bytes(trial, events),
        own=frozenset(gpu.uuid for gpu in own),
        linked=not own or any(gpu.nvlinks for gpu in own),
        iterations=evidence.measured_iterations(trial, events),
    )
    if not several:
        return within_a_node(run)
    gradients = evidence.gradient_bytes(events)
    emulated = "emulated: nodes of one machine" if one_machine else None
    between = {
        "gradient_bytes": gradients,
        "expected_bytes_per_step": None if gradients is None else gradients * evidence.gradient_factor(trial),
        "emulated": trial.link.label if trial.link and trial.link.emulated else emulated,
    }
    return Transport.model_validate({**dict(_between_nodes(run, nics or {}, one_machine=one_machine)), **between})


def _between_nodes(run: Observed, nics: Mapping[str, Sequence[Nic]], *, one_machine: bool) -> Transport:
    if unreported := [placed.node for placed in run.trial.placement if placed.node not in run.sent]:
        return run.unproved(f"{', '.join(unreported)} told no counters")
    if run.must_cross is None or run.contributed is None:
        return run.unproved("the program does not tell how large its gradients are")
    needed = run.must_cross // len(run.trial.placement)
    links = evidence.nvlink(run.evidence, run.own, devices=run.trial.world_size, needed=run.contributed)
    via = run.channels.via if run.carrier == "nccl" else frozenset()
    if via and not via & {"socket", "verbs"}:
        if "other" in via:
            return run.unproved("NCCL uses a network whose bytes are not counted here")
        if links and links.carried and not one_machine and "shm" not in via:
            return run.judged("nvlink", links)
    links = links if run.trial.world_size == len(run.trial.placement) else None
    if ("verbs" in via and "socket" not in via) or (not via and run.carrier not in IP_ONLY):
        verbs = _by_verbs(run, needed=needed, links=links)
        if via or verbs.used != "unknown":
            return verbs
    return _by_sockets(run, nics, needed=needed, links=links)


def _by_verbs(run: Observed, *, needed: int, links: Counted | None) -> Transport:
    """RDMA, if its ports moved enough: the ports that NCCL names, else those of the chosen wires."""
    wires = {placed.node: placed.wire for placed in run.trial.placement}
    chosen = {node: wire.hcas if wire else () for node, wire in wires.items()}
    ports = {
        node: [count for port, count in run.sent[node].ports.items() if port in (run.channels.hcas or own)]
        for node, own in chosen.items()
    }
    report = "NCCL says RDMA" if run.channels.via else "RDMA was chosen"
    if unreported := [node for node, own in ports.items() if not own]:
        return run.unproved(f"{report}, and {', '.join(unreported)} told no counters of its ports")
    moved = {node: sum(own) for node, own in ports.items()}
    count = evidence.node_traffic("rdma", list(moved.values()), needed=needed)
    if not count.carried:
        return run.judged("unknown", count, contradiction=contradiction_of(report, count))
    if links and links.found:
        actual: Used = "nvlink" if links.carried else "unknown"
        return run.judged(actual, count, links, contradiction=contradiction_of(report, links, count))
    kinds = {wire.kind for wire in wires.values() if wire}
    roce = "RoCE" in run.channels.layers if run.channels.layers else kinds == {"roce"}
    return run.judged(
        "roce" if roce else "infiniband",
        count,
        hcas=run.channels.hcas or tuple(sorted({hca for hcas in chosen.values() for hca in hcas})),
        sent_bytes_per_step=_per_step(run, moved),
    )


def _by_sockets(run: Observed, nics: Mapping[str, Sequence[Nic]], *, needed: int, links: Counted | None) -> Transport:
    """Sockets: on each node the interface that sent most, if that is enough (`needed`), and no faster wire carried them as well.

    `links` counts NVLink; it is given only with one GPU per node, whose NVLinks should be idle.
    """
    busiest: dict[str, str] = {}
    for placed in run.trial.placement:
        external = {name: count for name, count in run.sent[placed.node].interfaces.items() if name != "lo"}
        if not external:
            return run.unproved(f"{placed.node} told of no network interface")
        busiest[placed.node] = _busiest(external, placed)
    moved = {node: run.sent[node].interfaces[name] for node, name in busiest.items()}
    count = evidence.node_traffic("sockets", list(moved.values()), needed=needed)
    names = ", ".join(dict.fromkeys(busiest.values()))
    if not count.carried:
        inner = ", ".join(sorted(run.channels.via)) if not run.channels.via & {"socket", "verbs"} else ""
        report = f"NCCL says {inner} between the nodes" if inner else f"{run.library} is to use {names}"
        actual: Used = "nvlink" if links and links.carried else "unknown"
        return run.judged(actual, count, links, contradiction=contradiction_of(report, *known(count, links)))
    kinds = [_kind(placed, busiest[placed.node], nics) for placed in run.trial.placement]
    used = min(kinds, key=_WEAKEST_FIRST.index)
    contradiction = None
    if faster := _faster(run, links, needed=needed):
        wire, other = faster
        contradiction = contradiction_of(f"{run.library} is to use {used} ({names})", other, count)
        used = wire if other.carried else "unknown"
    return run.judged(
        used,
        count,
        links,
        contradiction=contradiction,
        interfaces=busiest,
        sent_bytes_per_step=_per_step(run, moved),
    )


def _faster(run: Observed, links: Counted | None, *, needed: int) -> tuple[Used, Counted] | None:
    """A faster wire that carried more than a stray part of the gradients alongside the sockets."""
    if links and links.found:
        return "nvlink", links
    if run.carrier in IP_ONLY:
        return None  # the adapters' bytes are not this carrier's, which speaks only IP
    ports = [sum(node.ports.values()) for node in run.sent.values()]
    over_ip = [sum(count for name, count in node.interfaces.items() if name != "lo") for node in run.sent.values()]
    count = evidence.node_traffic("rdma", ports, needed=needed)
    beyond = (
        sent > COUNTED_TWICE * other + transport.STRAY_FRACTION * needed
        for sent, other in zip(ports, over_ip, strict=True)
    )
    return (run.verbs, count) if any(beyond) else None


def _busiest(sent: Mapping[str, int], placed: Placed) -> str:
    most = max(sorted(sent), key=lambda name: sent[name])
    if placed.wire and sent.get(placed.wire.iface, 0) >= ALIKE * sent[most]:
        return placed.wire.iface
    return most


def _kind(placed: Placed, interface: str, nics: Mapping[str, Sequence[Nic]]) -> Used:
    """The kind of an interface, from its node, else from the chosen wire."""
    wire = placed.wire
    kind = next((nic.kind for nic in nics.get(placed.node, ()) if nic.name == interface), None)
    if kind == "infiniband" or (kind is None and wire and wire.iface == interface and wire.kind == "infiniband"):
        return "ipoib"
    return "ethernet" if kind or (wire and wire.iface == interface) else "unknown"


def _per_step(run: Observed, moved: Mapping[str, int]) -> dict[str, float]:
    return {node: count / run.iterations for node, count in moved.items()}
