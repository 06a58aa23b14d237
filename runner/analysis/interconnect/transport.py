"""Evidence → the transport that carried the gradients of a run. Pure.

What is claimed is what can be shown. Within a node the library's word is held against every counter (`proof`). Between nodes the
gradients have to leave each of them by interfaces or RDMA ports that count: where NCCL names the kind, those have to have moved as many
bytes as the gradients have; of all others, the interface or port carried them that did. A run in which none did, or a faster wire did
as well, is contradicted, and invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runner.analysis.interconnect import volume
from runner.analysis.interconnect.evidence import collect, read_channels, sent_by_node
from runner.analysis.interconnect.proof import Observed, Verdict, against, known, unproved, within_a_node
from runner.core import transport
from runner.core.events import Event, Nccl
from runner.core.node import Gpu, Nic
from runner.core.transport import IP_ONLY, Counted, PcieTraffic, Transport, Used
from runner.core.trial import Placed, Trial

# A bond, a VLAN or a bridge counts the bytes of the interface below it again: of two that carried alike, the chosen one is named.
ALIKE: Final = 0.9
# Ports of InfiniBand count IP over InfiniBand again, with headers of its own.
COUNTED_TWICE: Final = 1.1
# Where nodes differ, the link is what its weaker end is.
_WEAKEST_FIRST: Final[tuple[Used, ...]] = ("unknown", "loopback", "ethernet", "ipoib", "roce", "infiniband")


def used(
    trial: Trial,
    gpus: Sequence[Gpu],
    events: Sequence[Event],
    *,
    nics: Mapping[str, Sequence[Nic]] | None = None,
    one_machine: bool = False,
    pcie: Sequence[PcieTraffic] = (),
) -> Transport:
    """Turn evidence into the transport that carried the gradients of a run.

    `gpus` is what it could use of its only node; `nics` are interfaces by node, where not known an interface is what the chosen wire is;
    with `one_machine`, what is between several nodes is no real wire.
    """
    several = len(trial.placement) > 1
    own = () if several else gpus[trial.first_device : trial.first_device + trial.world_size]
    run = Observed(
        trial=trial,
        channels=read_channels(event.lines for event in events if isinstance(event, Nccl)),
        evidence=collect(events, pcie),
        sent=sent_by_node(events),
        needed=volume.handed_over(trial, events),
        least=volume.least_sent(trial, events),
        own=frozenset(gpu.uuid for gpu in own),
        linked=not own or any(gpu.nvlinks for gpu in own),
        iterations=volume.measured_iterations(trial, events),
    )
    if not several:
        return Transport(requested=trial.interconnect, evidence=run.evidence, **vars(within_a_node(run)))
    gradients = volume.gradient_bytes(events)
    emulated = "emulated: nodes of one machine" if one_machine else None
    return Transport(
        requested=trial.interconnect,
        evidence=run.evidence,
        **vars(_between_nodes(run, nics or {}, one_machine=one_machine)),
        gradient_bytes=gradients,
        expected_bytes_per_step=None if gradients is None else gradients * volume.gradient_factor(trial),
        emulated=trial.link.label if trial.link and trial.link.emulated else emulated,
    )


def _between_nodes(run: Observed, nics: Mapping[str, Sequence[Nic]], *, one_machine: bool) -> Verdict:
    """What crossed between the nodes."""
    if silent := [placed.node for placed in run.trial.placement if placed.node not in run.sent]:
        return unproved(f"{', '.join(silent)} told no counters")
    if run.least is None or run.needed is None:
        return unproved("the program does not tell how large its gradients are")
    needed = run.least // len(run.trial.placement)
    links = volume.nvlink(run.evidence, run.own, devices=run.trial.world_size, needed=run.needed)
    via = run.channels.via if run.carrier == "nccl" else frozenset()
    if via and not via & {"socket", "verbs"}:
        if "other" in via:
            return unproved("NCCL uses a network whose bytes are not counted here")
        if links and links.carried and not one_machine and "shm" not in via:
            return Verdict("nvlink", known(links))
    links = links if run.trial.world_size == len(run.trial.placement) else None
    if ("verbs" in via and "socket" not in via) or (not via and run.carrier not in IP_ONLY):
        verbs = _by_verbs(run, needed=needed, links=links)
        if via or verbs.used != "unknown":
            return verbs
    return _by_sockets(run, nics, needed=needed, links=links)


def _by_verbs(run: Observed, *, needed: int, links: Counted | None) -> Verdict:
    """RDMA, if its ports moved enough; those that NCCL names where it does, else those that the wires were chosen with."""
    wires = {placed.node: placed.wire for placed in run.trial.placement}
    chosen = {node: wire.hcas if wire else () for node, wire in wires.items()}
    ports = {
        node: [count for port, count in run.sent[node].ports.items() if port in (run.channels.hcas or own)]
        for node, own in chosen.items()
    }
    says = "NCCL says RDMA" if run.channels.via else "RDMA was chosen"
    if silent := [node for node, own in ports.items() if not own]:
        return unproved(f"{says}, and {', '.join(silent)} told no counters of its ports")
    moved = {node: sum(own) for node, own in ports.items()}
    count = volume.of_nodes("rdma", list(moved.values()), needed=needed)
    if not count.carried:
        return Verdict("unknown", known(count), contradiction=against(says, count))
    if links and links.found:
        really: Used = "nvlink" if links.carried else "unknown"
        return Verdict(really, known(count, links), contradiction=against(says, links, count))
    kinds = {wire.kind for wire in wires.values() if wire}
    roce = "RoCE" in run.channels.layers if run.channels.layers else kinds == {"roce"}
    return Verdict(
        "roce" if roce else "infiniband",
        known(count),
        hcas=run.channels.hcas or tuple(sorted({hca for hcas in chosen.values() for hca in hcas})),
        sent_bytes_per_step=_per_step(run, moved),
    )


def _by_sockets(run: Observed, nics: Mapping[str, Sequence[Nic]], *, needed: int, links: Counted | None) -> Verdict:
    """Sockets: on each node the interface that sent most, if that is enough (`needed`), and no faster wire carried them as well.

    `links` is NVLink, where no two GPUs of a node could have used it.
    """
    busiest: dict[str, str] = {}
    for placed in run.trial.placement:
        abroad = {name: count for name, count in run.sent[placed.node].interfaces.items() if name != "lo"}
        if not abroad:
            return unproved(f"{placed.node} told of no network interface")
        busiest[placed.node] = _busiest(abroad, placed)
    moved = {node: run.sent[node].interfaces[name] for node, name in busiest.items()}
    count = volume.of_nodes("sockets", list(moved.values()), needed=needed)
    names = ", ".join(dict.fromkeys(busiest.values()))
    if not count.carried:
        inner = ", ".join(sorted(run.channels.via)) if not run.channels.via & {"socket", "verbs"} else ""
        says = f"NCCL says {inner} between the nodes" if inner else f"{run.library} is to use {names}"
        really: Used = "nvlink" if links and links.carried else "unknown"
        return Verdict(really, known(count, links), contradiction=against(says, *known(count, links)))
    kinds = [_kind(placed, busiest[placed.node], nics) for placed in run.trial.placement]
    used = min(kinds, key=_WEAKEST_FIRST.index)
    contradiction = None
    if faster := _faster(run, links, needed=needed):
        wire, other = faster
        contradiction = against(f"{run.library} is to use {used} ({names})", other, count)
        used = wire if other.carried else "unknown"
    return Verdict(
        used,
        known(count, links),
        contradiction=contradiction,
        interfaces=busiest,
        sent_bytes_per_step=_per_step(run, moved),
    )


def _faster(run: Observed, links: Counted | None, *, needed: int) -> tuple[Used, Counted] | None:
    """A wire on which more than a stray part of the gradients went beside the sockets."""
    if links and links.found:
        return "nvlink", links
    if run.carrier in IP_ONLY:
        return None  # whoever used the adapters, these can't
    ports = [sum(node.ports.values()) for node in run.sent.values()]
    over_ip = [sum(count for name, count in node.interfaces.items() if name != "lo") for node in run.sent.values()]
    count = volume.of_nodes("rdma", ports, needed=needed)
    beyond = (
        sent > COUNTED_TWICE * other + transport.STRAY * needed for sent, other in zip(ports, over_ip, strict=True)
    )
    return (run.verbs, count) if any(beyond) else None


def _busiest(sent: Mapping[str, int], placed: Placed) -> str:
    most = max(sorted(sent), key=lambda name: sent[name])
    if placed.wire and sent.get(placed.wire.iface, 0) >= ALIKE * sent[most]:
        return placed.wire.iface
    return most


def _kind(placed: Placed, interface: str, nics: Mapping[str, Sequence[Nic]]) -> Used:
    """What an interface is, as its node says, or as it was chosen."""
    wire = placed.wire
    kind = next((nic.kind for nic in nics.get(placed.node, ()) if nic.name == interface), None)
    if kind == "infiniband" or (kind is None and wire and wire.iface == interface and wire.kind == "infiniband"):
        return "ipoib"
    return "ethernet" if kind or (wire and wire.iface == interface) else "unknown"


def _per_step(run: Observed, moved: Mapping[str, int]) -> dict[str, float]:
    return {node: count / run.iterations for node, count in moved.items()}
