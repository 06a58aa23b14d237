"""Evidence → the transport that carried the gradients of a run. Pure.

What is claimed is what can be shown: NCCL says itself what each of its channels goes over; of all others, the interface or port carried
the gradients that moved as many bytes as they have. Where nothing did, the transport is `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runner.events import Event, Nccl
from runner.interconnect.carrier import IP_ONLY, carrier
from runner.interconnect.evidence import Evidence, NodeSent, collect, sent_by_node
from runner.interconnect.model import Transport, Used
from runner.interconnect.nccl import Channels, join_channels, read_channels
from runner.interconnect.volume import gradient_bytes, gradient_factor, least_sent
from runner.machine.cluster import Gpu, Nic
from runner.trial import Placed, Trial

# Of the bytes that must have crossed: counters that a card's firmware keeps may lag behind by a second.
ENOUGH: Final = 0.5
# A bond, a VLAN or a bridge counts the bytes of the interface below it again: of two that carried alike, the chosen one is named.
ALIKE: Final = 0.9
# Where nodes differ, the link is what its weaker end is.
_WEAKEST_FIRST: Final[tuple[Used, ...]] = ("unknown", "loopback", "ethernet", "ipoib", "roce", "infiniband")


def used(
    trial: Trial,
    gpus: Sequence[Gpu],
    events: Sequence[Event],
    *,
    nics: Mapping[str, Sequence[Nic]] | None = None,
    one_machine: bool = False,
) -> Transport:
    """Turn evidence into the transport that carried the gradients of a run.

    Args:
        trial: what ran, with the wires that were chosen for it.
        gpus: what the run could use.
        events: all events of all ranks.
        nics: by node, its network interfaces; what an interface is follows from the wire that was chosen where they are not known.
        one_machine: whether several nodes are one machine, so that what is between them is no real wire.
    """
    evidence = collect(events)
    channels = join_channels([read_channels(event.lines) for event in events if isinstance(event, Nccl)])
    if len(trial.placement) > 1:
        transport = _between_nodes(trial, channels, events, nics or {})
        return transport.model_copy(
            update={"evidence": evidence, "emulated": _emulated(trial, one_machine=one_machine)}
        )
    found = _within_a_node(trial, channels, evidence, gpus, least=least_sent(trial, events))
    return Transport(requested=trial.interconnect, used=found, evidence=evidence)


def _within_a_node(trial: Trial, channels: Channels, evidence: Evidence, gpus: Sequence[Gpu], *, least: int) -> Used:
    on_gpu = trial.device == "gpu"
    carries = carrier(trial)
    if carries == "none":
        return "none"
    if carries == "nccl":
        return _slowest(channels, evidence, gpus, least)
    if carries == "memory":
        # MXNet copies between GPUs by itself and tells nothing of it.
        return ("nvlink" if _over_nvlink(evidence, least) else "unknown") if on_gpu else "process"
    # Ranks that share a network namespace read the same counter.
    if max((entry.tx_bytes for entry in evidence.traffic if entry.interface == "lo"), default=0) >= least:
        return "loopback"
    # The one other way that Open MPI was left, and the gradients were not on the loopback.
    return "shm" if carries == "mpi" else "unknown"


def _slowest(channels: Channels, evidence: Evidence, gpus: Sequence[Gpu], least: int) -> Used:
    """Name the slowest kind of channel: the ring is as fast as that one."""
    if "other" in channels.via:
        return "unknown"
    if "socket" in channels.via:
        return "loopback" if channels.interfaces == ("lo",) else "ethernet"
    if "verbs" in channels.via:
        return "roce" if "RoCE" in channels.layers else "infiniband"
    if "shm" in channels.via:
        return "shm"
    if "p2p" in channels.via:
        moved = _over_nvlink(evidence, least) if evidence.nvlink else any(gpu.nvlinks for gpu in gpus)
        return "nvlink" if moved else "pcie"
    return "unknown"


def _over_nvlink(evidence: Evidence, least: int) -> bool:
    """Whether every GPU that counts its NVLinks moved the gradients over them."""
    return bool(evidence.nvlink) and all(max(gpu.rx_bytes, gpu.tx_bytes) >= ENOUGH * least for gpu in evidence.nvlink)


def _between_nodes(
    trial: Trial, channels: Channels, events: Sequence[Event], nics: Mapping[str, Sequence[Nic]]
) -> Transport:
    """What crossed between the nodes; the evidence itself is added by the caller."""
    carries = carrier(trial)
    gradients = gradient_bytes(events)
    sent = sent_by_node(events)
    enough = ENOUGH * least_sent(trial, events)
    nothing = Transport(
        requested=trial.interconnect,
        used="unknown",
        evidence=Evidence(traffic=(), nccl_lines=()),
        gradient_bytes=gradients,
        expected_bytes_per_step=None if gradients is None else gradients * gradient_factor(trial),
    )
    by_nccl = carries == "nccl" and bool(channels.via)
    if by_nccl and not channels.via & {"socket", "verbs"}:
        return nothing  # a network that nobody here knows, or nodes that NCCL took for one
    if (by_nccl and "socket" not in channels.via) or (not by_nccl and carries not in IP_ONLY):
        verbs = _by_verbs(trial, channels, sent, nothing, enough=0 if by_nccl else enough)
        if verbs.used != "unknown":
            return verbs
    return _by_sockets(trial, sent, nics, nothing, enough=enough)


def _by_verbs(
    trial: Trial, channels: Channels, sent: Mapping[str, NodeSent], nothing: Transport, *, enough: float
) -> Transport:
    """RDMA, if its ports moved enough; those that NCCL names where it does, else those that the wires were chosen with."""
    chosen = {placed.node: placed.wire.hcas if placed.wire else () for placed in trial.placement}
    moved = {
        node: sum(count for port, count in counted.ports.items() if port in (channels.hcas or chosen.get(node, ())))
        for node, counted in sent.items()
    }
    if not channels.via and (not any(chosen.values()) or sum(moved.values()) < enough):
        return nothing
    kinds = {placed.wire.kind for placed in trial.placement if placed.wire}
    roce = "RoCE" in channels.layers if channels.layers else kinds == {"roce"}
    return nothing.model_copy(
        update={
            "used": "roce" if roce else "infiniband",
            "hcas": channels.hcas or tuple(sorted({hca for hcas in chosen.values() for hca in hcas})),
            "sent_bytes_per_step": _per_step(trial, moved),
        }
    )


def _by_sockets(
    trial: Trial,
    sent: Mapping[str, NodeSent],
    nics: Mapping[str, Sequence[Nic]],
    nothing: Transport,
    *,
    enough: float,
) -> Transport:
    """Sockets: on each node the interface that sent most, if all of them together sent enough."""
    busiest = {}
    for placed in trial.placement:
        interfaces = sent[placed.node].interfaces if placed.node in sent else {}
        abroad = {name: count for name, count in interfaces.items() if name != "lo"}
        if not abroad:
            return nothing
        busiest[placed.node] = _busiest(abroad, placed)
    moved = {node: sent[node].interfaces[name] for node, name in busiest.items()}
    if sum(moved.values()) < enough:
        return nothing
    kinds = [_kind(placed, busiest[placed.node], nics) for placed in trial.placement]
    return nothing.model_copy(
        update={
            "used": min(kinds, key=_WEAKEST_FIRST.index),
            "interfaces": busiest,
            "sent_bytes_per_step": _per_step(trial, moved),
        }
    )


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


def _per_step(trial: Trial, moved: Mapping[str, int]) -> dict[str, float]:
    return {node: count / trial.iterations for node, count in moved.items()}


def _emulated(trial: Trial, *, one_machine: bool) -> str | None:
    """What to call a link that is no real wire."""
    if trial.link and trial.link.emulated:
        return trial.link.label
    return "emulated: nodes of one machine" if one_machine else None
