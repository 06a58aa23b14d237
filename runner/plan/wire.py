"""`Wire`: the way between the nodes of a job, as it was chosen before anything started; what was really used is `interconnect`'s. Pure.

A request names a kind (INTERCONNECT), an interface (IFACE) or an adapter (HCA); a node has interfaces, some by a role in the hosts
file. What a node does not have is refused here, in one sentence that names it. With COMPARE every kind that all nodes have is taken, or
between the GPUs of one machine its own link, shared memory, and the sockets that a program takes which finds neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.core.errors import RequestError, nearest
from runner.core.node import Hca, Member, Nic, Node
from runner.core.request import Device, Interconnect, Request
from runner.core.wire import Wire, WireKind

# Fastest first: what `INTERCONNECT=auto` takes of the kinds that every node has.
KINDS: Final[tuple[WireKind, ...]] = ("infiniband", "roce", "ethernet")
_LINK_LAYERS: Final[dict[WireKind, str]] = {"infiniband": "InfiniBand", "roce": "Ethernet"}
# Bridges and cables of container engines, which lead to no other machine.
_INNER: Final = ("docker", "br-", "veth", "virbr", "cni", "podman")


@dataclass(frozen=True)
class Wanted:
    """What was asked of the wires."""

    interconnect: Interconnect  # `auto` for the fastest that all nodes have
    iface: str | None = None
    hca: str | None = None
    ip_only: bool = (
        False  # what carries the gradients speaks IP and nothing else, so that InfiniBand means IP over InfiniBand
    )


def kinds(request: Request, members: Sequence[Member], *, device: Device, ip_only: bool) -> tuple[Interconnect, ...]:
    """The kinds of wire to run over: those that were asked for, or with COMPARE all that are there. RequestError: nothing to compare."""
    if not request.compare or request.interconnect != ("auto",):
        return request.interconnect
    if len(members) == 1:
        node = members[0].node
        if device == "cpu" or len(node.gpus) < 2:  # noqa: PLR2004 - a wire has two ends
            raise RequestError(
                f"nothing to compare: {node.name} is one node without two GPUs to train on; name several hosts, or leave HOSTS, NODES and GPUS "
                "out to compare emulated links on this machine"
            )
        return ("nvlink" if all(gpu.nvlinks for gpu in node.gpus) else "pcie", "shm", "loopback")
    if request.links and len(request.links) > 1:
        return request.interconnect
    found: list[Interconnect] = []
    for kind in KINDS:
        try:
            choose_wires(members, Wanted(kind, request.iface, request.hca, ip_only))
        except RequestError:
            continue
        found.append(kind)
    if len(found) < 2:  # noqa: PLR2004 - a comparison
        raise RequestError(
            f"nothing to compare: {request.hosts or 'these nodes'} have {' and '.join(found) or 'no wire'} in common, and that is all; "
            "leave HOSTS out to compare emulated links on this machine"
        )
    return tuple(found)


def choose_wires(members: Sequence[Member], wanted: Wanted) -> tuple[Wire, ...]:
    """Choose one kind of wire for all nodes, and on each the interface for it. RequestError: a node has no such wire."""
    refusals = []
    for kind in _kinds(wanted):
        try:
            return tuple(_wire(member, kind, wanted) for member in members)
        except RequestError as error:
            refusals.append(error)
    raise refusals[-1]


def _kinds(wanted: Wanted) -> tuple[WireKind, ...]:
    """The kinds that may serve, best first."""
    asked = f"INTERCONNECT={wanted.interconnect}"
    if wanted.hca and (wanted.ip_only or wanted.interconnect == "ethernet"):
        why = (
            "what carries the gradients speaks IP, which passes adapters by" if wanted.ip_only else f"{asked} uses none"
        )
        raise RequestError(f"HCA={wanted.hca} asked, but {why}; leave HCA out, or ask for what can use it")
    if wanted.interconnect == "roce" and wanted.ip_only:
        raise RequestError(
            f"{asked} asked, but what carries the gradients speaks IP, which over RoCE adapters is Ethernet; "
            "ask for INTERCONNECT=ethernet with IFACE=NAME of that adapter's interface"
        )
    if wanted.interconnect != "auto":
        if wanted.interconnect not in KINDS:
            raise RequestError(
                f"{asked} asked, but no {wanted.interconnect} leads from one node to another; "
                f"ask for INTERCONNECT=auto, {', '.join(reversed(KINDS))}, or for one node"
            )
        return (wanted.interconnect,)
    if wanted.hca:
        return ("infiniband", "roce")
    # An interface that was asked for by name is to carry the gradients: RDMA on another wire would pass it by.
    return ("infiniband", "ethernet") if wanted.ip_only or wanted.iface else KINDS


def _wire(member: Member, kind: WireKind, wanted: Wanted) -> Wire:
    node = member.node
    # What speaks IP uses no adapter; that there is none is still the better reason than that none has an interface.
    idle = kind == "ethernet" or (wanted.ip_only and any(nic.kind == "infiniband" for nic in node.nics))
    hcas = () if idle else _hcas(member, kind, wanted)
    nic = _nic(member, kind, wanted)
    address = member.said.addresses.get(nic.name) or nic.address
    if address is None:
        raise RequestError(
            f"{node.name}: interface {nic.name} has no address, so that no other node can reach it; "
            "give it one, write it into the hosts file, or ask for another with IFACE=NAME"
        )
    used = () if wanted.ip_only else tuple(f"{port.name}:{port.port}" for port in hcas)
    return Wire(kind=kind, iface=nic.name, address=address, hcas=used)


def _nic(member: Member, kind: WireKind, wanted: Wanted) -> Nic:
    """The interface that was asked for by name, that has the role in the hosts file, or the fastest of that kind."""
    node = member.node
    if name := wanted.iface or member.said.roles.get(kind):
        return _named_nic(node, name, kind, wanted)
    able = [nic for nic in node.nics if nic.state != "down" and nic.address]
    if kind == "infiniband":
        fitting = [nic for nic in able if nic.kind == "infiniband"]
        if not fitting and not wanted.ip_only:
            return _nic(member, "ethernet", wanted)  # RDMA needs no address; the ranks meet over whatever has one
    else:
        fitting = [nic for nic in able if nic.kind in ("ethernet", "bond")]
        # Virtual machines and containers have nothing else.
        fitting = fitting or [nic for nic in able if nic.kind == "virtual" and not nic.name.startswith(_INNER)]
    if not fitting:
        names = ", ".join(f"{nic.name} ({nic.kind}, {nic.state})" for nic in node.nics if nic.kind != "loopback")
        raise RequestError(
            f"INTERCONNECT={kind} asked, {node.name} has no interface for it that is up and has an address "
            f"(it has {names or 'none'}); ask for another kind, or name one with IFACE=NAME"
        )
    return max(fitting, key=lambda nic: nic.speed_mbit or 0)


def _named_nic(node: Node, name: str, kind: WireKind, wanted: Wanted) -> Nic:
    """An interface by name, if it is there, up, and can be that kind of wire."""
    by_name = {nic.name: nic for nic in node.nics}
    where = f"IFACE={name} asked" if wanted.iface else f"the hosts file names {name} for {kind}"
    if name not in by_name:
        raise RequestError(f"{where}, {node.name} has no such interface; it has {nearest(name, tuple(by_name))}")
    nic = by_name[name]
    if nic.state == "down":
        raise RequestError(f"{where}, which is down on {node.name}; bring it up, or ask for another with IFACE=NAME")
    # Asked to carry InfiniBand's gradients itself: by IP, or because nothing but its name was asked for.
    carries = wanted.ip_only or (wanted.interconnect == "auto" and wanted.hca is None)
    if (nic.kind == "infiniband") != (kind == "infiniband") and (carries or kind == "ethernet"):
        raise RequestError(
            f"{where}, but on {node.name} it is {nic.kind} and no {kind}; "
            "ask for the kind that it is, or for another interface with IFACE=NAME"
        )
    return nic


def _hcas(member: Member, kind: WireKind, wanted: Wanted) -> tuple[Hca, ...]:
    """The ports that RDMA of this kind can use: those that were named, else all that are active."""
    node = member.node
    named = (wanted.hca,) if wanted.hca else member.said.hcas
    found = tuple(
        port
        for port in node.hcas
        if port.link_layer == _LINK_LAYERS[kind]
        and port.state == "ACTIVE"
        and (not named or port.name in named or f"{port.name}:{port.port}" in named)
    )
    if found:
        return found
    there = ", ".join(f"{port.name}:{port.port} {port.link_layer} {port.state}" for port in node.hcas) or "none"
    if wanted.hca:
        raise RequestError(
            f"HCA={wanted.hca} asked, {node.name} has no such adapter that is active (adapters: {there})"
        )
    raise RequestError(
        f"INTERCONNECT={kind} asked, {node.name} has no active adapter for it (adapters: {there}); "
        "check `dlscale doctor --hosts`, or ask for INTERCONNECT=ethernet"
    )
