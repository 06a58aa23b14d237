"""`Wire`: the way between the nodes of a job, as it was chosen before anything started; what was really used is `interconnect`'s.

A request names a kind (INTERCONNECT), an interface (IFACE) or an adapter (HCA); a node has interfaces, some by a role in the hosts
file. What a node does not have is refused here, in one sentence that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from runner.cluster import Hca, Nic, Node
from runner.errors import RequestError, nearest
from runner.request import Interconnect

WireKind = Literal["ethernet", "infiniband", "roce"]
# Fastest first: what `INTERCONNECT=auto` takes of the kinds that every node has.
KINDS: Final[tuple[WireKind, ...]] = ("infiniband", "roce", "ethernet")
_LINK_LAYERS: Final[dict[WireKind, str]] = {"infiniband": "InfiniBand", "roce": "Ethernet"}
# Bridges and cables of container engines, which lead to no other machine.
_INNER: Final = ("docker", "br-", "veth", "virbr", "cni", "podman")


class Wire(BaseModel):
    """How the other nodes of a job reach one of them.

    Attributes:
        iface: interface that all libraries are bound to.
        address: its address, or a name that leads there.
        hcas: RDMA adapters that NCCL may use, `mlx5_0:1` with the port; none for a wire that is driven through the kernel alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: WireKind
    iface: str
    address: str
    hcas: tuple[str, ...] = ()


class NodeWires(BaseModel):
    """What the hosts file says of a node's interfaces: by role a name, and by name an address where the file gives one.

    Attributes:
        hcas: adapters that it names; all that are active where it names none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    roles: Mapping[WireKind, str] = {}
    addresses: Mapping[str, str] = {}
    hcas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What was asked of the wires.

    Attributes:
        interconnect: the kind; `auto` for the fastest that all nodes have.
        iface, hca: interface and RDMA adapter by name.
        ip_only: whether what carries the gradients speaks IP and nothing else, so that InfiniBand means IP over InfiniBand.
    """

    interconnect: Interconnect
    iface: str | None = None
    hca: str | None = None
    ip_only: bool = False


def choose_wires(nodes: Sequence[tuple[Node, NodeWires]], wanted: Wanted) -> tuple[Wire, ...]:
    """Choose one kind of wire for all nodes, and on each the interface for it.

    Args:
        nodes: what each offers, and what the hosts file says of it.
        wanted: what was asked.

    Raises:
        RequestError: a node has no such wire.
    """
    kinds = KINDS if wanted.interconnect == "auto" else (wanted.interconnect,)
    refusals = []
    for kind in kinds:
        if kind not in KINDS:
            raise RequestError(
                f"INTERCONNECT={kind} asked, but no {kind} leads from one node to another; "
                f"ask for INTERCONNECT=auto, {', '.join(reversed(KINDS))}, or for one node"
            )
        try:
            return tuple(_wire(node, said, kind, wanted) for node, said in nodes)
        except RequestError as error:
            refusals.append(error)
    raise refusals[-1]


def _wire(node: Node, said: NodeWires, kind: WireKind, wanted: Wanted) -> Wire:
    hcas = _hcas(node, said, kind, wanted.hca)
    if kind != "ethernet" and not hcas:
        found = ", ".join(f"{port.name}:{port.port} {port.link_layer} {port.state}" for port in node.hcas) or "none"
        raise RequestError(
            f"INTERCONNECT={kind} asked, {node.name} has no active adapter for it (adapters: {found}); "
            "check `dlscale doctor --hosts`, or ask for INTERCONNECT=ethernet"
        )
    nic = _nic(node, said, kind, wanted)
    address = said.addresses.get(nic.name) or nic.address
    if address is None:
        raise RequestError(
            f"{node.name}: interface {nic.name} has no address, so that no other node can reach it; "
            "give it one, write it into the hosts file, or ask for another with IFACE=NAME"
        )
    return Wire(kind=kind, iface=nic.name, address=address, hcas=tuple(f"{port.name}:{port.port}" for port in hcas))


def _nic(node: Node, said: NodeWires, kind: WireKind, wanted: Wanted) -> Nic:
    """The interface that was asked for by name, that has the role in the hosts file, or the one that is of that kind."""
    by_name = {nic.name: nic for nic in node.nics}
    name = wanted.iface or said.roles.get(kind)
    if name and name not in by_name:
        where = f"IFACE={name} asked" if wanted.iface else f"the hosts file names {name} for {kind}"
        raise RequestError(f"{where}, {node.name} has no such interface; it has {nearest(name, tuple(by_name))}")
    if name:
        return by_name[name]
    layer = "infiniband" if kind == "infiniband" else "ethernet"
    able = [nic for nic in node.nics if nic.state != "down" and nic.address]
    fitting = [nic for nic in able if nic.kind in (layer, "bond")] if layer == "ethernet" else []
    fitting = fitting or [nic for nic in able if nic.kind == layer]
    if not fitting and layer == "ethernet":  # virtual machines and containers
        fitting = [nic for nic in able if nic.kind == "virtual" and not nic.name.startswith(_INNER)]
    if not fitting and kind == "infiniband" and not wanted.ip_only:
        # RDMA needs no address; the ranks meet over whatever has one.
        return _nic(node, said, "ethernet", wanted)
    if not fitting:
        names = ", ".join(f"{nic.name} ({nic.kind}, {nic.state})" for nic in node.nics if nic.kind != "loopback")
        raise RequestError(
            f"INTERCONNECT={kind} asked, {node.name} has no interface for it that is up and has an address "
            f"(it has {names or 'none'}); ask for another kind, or name one with IFACE=NAME"
        )
    return max(fitting, key=lambda nic: nic.speed_mbit or 0)


def _hcas(node: Node, said: NodeWires, kind: WireKind, hca: str | None) -> tuple[Hca, ...]:
    """The ports that RDMA of this kind can use: those that were named, else all that are active."""
    if kind == "ethernet":
        return ()
    named = (hca,) if hca else said.hcas
    found = [
        port
        for port in node.hcas
        if port.link_layer == _LINK_LAYERS[kind]
        and port.state == "ACTIVE"
        and (not named or port.name in named or f"{port.name}:{port.port}" in named)
    ]
    if hca and not found:
        raise RequestError(
            f"HCA={hca} asked, {node.name} has no such adapter that is active; it has "
            f"{', '.join(f'{port.name}:{port.port}' for port in node.hcas) or 'none'}"
        )
    return tuple(found)
