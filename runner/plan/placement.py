"""Places ranks on nodes and chooses their wires. Pure: a request for what a node lacks is refused in one sentence that names it.

Nodes are used in order, each with the same number of devices, and as few as possible. CONCURRENT uses all requested devices in three ways:
one training alone, several in sequence on all devices, and as many at the same time, each on its own share, or all on all devices if these
cannot be divided equally.

A request names a kind of wire (INTERCONNECT), an interface (IFACE) or an adapter (HCA); a node has interfaces, some with a role in the hosts
file. COMPARE takes every kind that all nodes have; between the GPUs of one machine it takes their own link, shared memory, and sockets, the
fallback of programs that find neither. `analysis/interconnect` finds the wire that was really used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.core.errors import RequestError, nearest
from runner.core.node import Hca, Member, Nic, Node
from runner.core.request import Device, Interconnect, Request
from runner.core.trial import Concurrent
from runner.core.wire import Wire, WireKind
from runner.images.custom_image import AnyImage
from runner.plan.strategy import offered


def nodes_for(scale: int, members: Sequence[Member], *, request: Request, device: Device) -> int | None:
    """The number of nodes for `scale` devices: NODES, else the fewest possible; None if these cannot provide them equally."""
    if scale == 1:
        return 1
    capacity = [member.devices(device) for member in members]
    if request.oversubscribe and device == "cpu" and len(members) == 1:
        return 1
    counts = [request.nodes] if request.nodes else range(1, len(members) + 1)
    fitting = (n for n in counts if n <= len(capacity) and scale % n == 0 and scale // n <= min(capacity[:n]))
    return next(fitting, None)


def scales(request: Request, image: AnyImage, members: Sequence[Member]) -> tuple[int, ...]:
    """Numbers of devices to run on, ascending. Raises RequestError, with an alternative, for more than the nodes offer."""
    device = image.device
    asked = request.gpus if device == "gpu" else request.workers
    capacity = [member.devices(device) for member in members]
    variable = "GPUS" if device == "gpu" else "WORKERS"
    if device == "gpu" and not capacity[0]:
        wanted = f"GPUS={','.join(map(str, asked))}" if asked else "DEVICE=gpu"
        first = members[0].node
        step = f"leave it out of {request.hosts}" if any(capacity) else "ask for DEVICE=cpu WORKERS=1,2 instead"
        raise RequestError(f"{wanted} asked, {first.name} offers none ({first.gpu_reason}); {step}")
    if request.nodes and request.nodes > len(members):
        names = ", ".join(member.node.name for member in members)
        raise RequestError(
            f"NODES={request.nodes} asked, {request.hosts} offers {len(members)} ({names}); add nodes or ask for NODES={len(members)}"
        )
    single_only = offered(image) == ("single",)
    if asked and asked[-1] > 1 and single_only:
        raise RequestError(f"{variable}={asked[-1]} asked, {image.name} trains on one device; ask for {variable}=1")
    for scale in asked or ():
        if nodes_for(scale, members, request=request, device=device) is None:
            raise RequestError(_no_room(scale, members, request=request, device=device))
    if asked:
        return asked
    if single_only:
        return (1,)
    return _default_scales(members, request=request, device=device)


def _default_scales(members: Sequence[Member], *, request: Request, device: Device) -> tuple[int, ...]:
    """The default numbers: 1 and 2 workers on a CPU node, 1 and one per node on several, or powers of two and all GPUs, if nodes share them equally."""
    most = sum(member.devices(device) for member in members)
    if device == "cpu" and len(members) > 1:
        return tuple(sorted({1, request.nodes or len(members)}))
    if device == "cpu":
        return (1, 2) if most > 1 else (1,)
    wanted = sorted({*(2**exponent for exponent in range(most.bit_length())), most})
    return tuple(n for n in wanted if nodes_for(n, members, request=request, device=device))


def _no_room(scale: int, members: Sequence[Member], *, request: Request, device: Device) -> str:
    """Say why the nodes cannot provide `scale` devices, and what they can."""
    unit, variable = ("GPUs", "GPUS") if device == "gpu" else ("cores", "WORKERS")
    capacity = [member.devices(device) for member in members]
    if len(members) == 1:
        step = " or add --oversubscribe" if device == "cpu" else ""
        return (
            f"{variable}={scale} asked, {members[0].node.name} offers {capacity[0]} {unit}; "
            f"ask for {variable}={capacity[0]} or fewer{step}"
        )
    used = capacity[: request.nodes or len(capacity)]
    each = ", ".join(f"{member.node.name}: {count}" for member, count in zip(members, used, strict=False))
    source = request.hosts or "this machine"
    if scale > sum(used):
        return f"{variable}={scale} asked, {source} offers {sum(used)} ({each}); add nodes or ask for {sum(used)}"
    possible = [n for n in range(1, sum(used) + 1) if nodes_for(n, members, request=request, device=device)]
    nodes = f" over NODES={request.nodes}" if request.nodes else ""
    return (
        f"{variable}={scale}{nodes} asked, but all nodes must provide the same number of {unit} ({each}); "
        f"ask for {variable}={' or '.join(map(str, possible[-3:]))}"
    )


def cases(trainings: int, asked: Sequence[int]) -> tuple[tuple[int, Concurrent], ...]:
    """All trainings of one repeat with CONCURRENT, in running order, each with its number of devices.

    Raises RequestError for a sweep, because the cases are compared on one number of devices.
    """
    if len(asked) > 1:
        listed = ",".join(map(str, asked))
        raise RequestError(
            f"CONCURRENT={trainings} compares on one number of devices, not on {listed}; choose one, such as WORKERS={asked[-1]}"
        )
    devices = asked[0]
    shared = devices % trainings != 0
    each = devices if shared else devices // trainings
    numbers = range(1, trainings + 1)
    return (
        (devices, Concurrent(trainings=trainings, case="one", number=1)),
        *((devices, Concurrent(trainings=trainings, case="sequential", number=number)) for number in numbers),
        *((each, Concurrent(trainings=trainings, case="together", number=number, shared=shared)) for number in numbers),
    )


# Fastest first; `INTERCONNECT=auto` takes the first kind that every node has.
KINDS: Final[tuple[WireKind, ...]] = ("infiniband", "roce", "ethernet")
_LINK_LAYERS: Final[dict[WireKind, str]] = {"infiniband": "InfiniBand", "roce": "Ethernet"}
# Prefixes of container engines' bridges and virtual cables, which lead to no other machine.
_INTERNAL: Final = ("docker", "br-", "veth", "virbr", "cni", "podman")


@dataclass(frozen=True)
class WireRequest:
    """The wires that a request asks for."""

    interconnect: Interconnect  # `auto` for the fastest that all nodes have
    iface: str | None = None
    hca: str | None = None
    ip_only: bool = False  # gradients travel by IP only, so that InfiniBand means IP over InfiniBand


def kinds(request: Request, members: Sequence[Member], *, device: Device, ip_only: bool) -> tuple[Interconnect, ...]:
    """The kinds of wire to run over: as requested, or all that exist with COMPARE.

    Raises RequestError if there is nothing to compare, or if CPUs are to use a wire that they have not.
    """
    of_gpus = [kind for kind in request.interconnect if kind in ("nvlink", "pcie")]
    if of_gpus and device == "cpu" and len(members) == 1:  # several nodes are refused with their own reason
        raise RequestError(
            f"INTERCONNECT={of_gpus[0]} needs GPUs, and this runs on DEVICE=cpu; ask for INTERCONNECT=auto or loopback"
        )
    if ip_only and device == "cpu" and len(members) == 1 and "shm" in request.interconnect:
        raise RequestError(
            "INTERCONNECT=shm asked, but the gradients of these CPU workers travel by IP; ask for INTERCONNECT=auto or loopback, "
            "or for STRATEGY=horovod CONTROLLER=mpi"
        )
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
            choose_wires(members, WireRequest(kind, request.iface, request.hca, ip_only))
        except RequestError:
            continue
        found.append(kind)
    if len(found) < 2:  # noqa: PLR2004 - a comparison
        raise RequestError(
            f"nothing to compare: {request.hosts or 'these nodes'} have {'only ' + found[0] if found else 'no wire'} in common; "
            "leave HOSTS out to compare emulated links on this machine"
        )
    return tuple(found)


def choose_wires(members: Sequence[Member], wire_request: WireRequest) -> tuple[Wire, ...]:
    """Choose one kind of wire for all nodes, and its interface on each. Raises RequestError if a node lacks such a wire."""
    refusals = []
    for kind in _kinds(wire_request):
        try:
            return tuple(_wire(member, kind, wire_request) for member in members)
        except RequestError as error:
            refusals.append(error)
    raise refusals[-1]


def _kinds(wire_request: WireRequest) -> tuple[WireKind, ...]:
    """The kinds that meet the request, best first."""
    asked = f"INTERCONNECT={wire_request.interconnect}"
    if wire_request.hca and (wire_request.ip_only or wire_request.interconnect == "ethernet"):
        why = "gradients travel by IP, which bypasses adapters" if wire_request.ip_only else f"{asked} uses none"
        raise RequestError(
            f"HCA={wire_request.hca} asked, but {why}; leave HCA out, or ask for a strategy or interconnect that uses it"
        )
    if wire_request.interconnect == "roce" and wire_request.ip_only:
        raise RequestError(
            f"{asked} asked, but gradients travel by IP, which is Ethernet on RoCE adapters; "
            "ask for INTERCONNECT=ethernet with IFACE=NAME of that adapter's interface"
        )
    if wire_request.interconnect != "auto":
        if wire_request.interconnect not in KINDS:
            raise RequestError(
                f"{asked} asked, but no {wire_request.interconnect} leads from one node to another; "
                f"ask for INTERCONNECT=auto, {', '.join(reversed(KINDS))}, or for one node"
            )
        return (wire_request.interconnect,)
    if wire_request.hca:
        return ("infiniband", "roce")
    # An interface that was requested by name must carry the gradients; RDMA on another wire would bypass it.
    return ("infiniband", "ethernet") if wire_request.ip_only or wire_request.iface else KINDS


def _wire(member: Member, kind: WireKind, wire_request: WireRequest) -> Wire:
    node = member.node
    # IP uses no adapter, but if there is no InfiniBand interface, a missing adapter is the better reason for refusal.
    without_adapter = kind == "ethernet" or (
        wire_request.ip_only and any(nic.kind == "infiniband" for nic in node.nics)
    )
    hcas = () if without_adapter else _hcas(member, kind, wire_request)
    nic = _nic(member, kind, wire_request)
    address = member.network.addresses.get(nic.name) or nic.address
    if address is None:
        raise RequestError(
            f"{node.name}: interface {nic.name} has no address, so no other node can reach it; "
            "assign one, add it to the hosts file, or ask for another interface with IFACE=NAME"
        )
    used = () if wire_request.ip_only else tuple(f"{port.name}:{port.port}" for port in hcas)
    return Wire(kind=kind, iface=nic.name, address=address, hcas=used)


def _nic(member: Member, kind: WireKind, wire_request: WireRequest) -> Nic:
    """The interface that was requested by name, that has the role in the hosts file, or the fastest of that kind."""
    node = member.node
    if name := wire_request.iface or member.network.roles.get(kind):
        return _named_nic(node, name, kind, wire_request)
    usable = [nic for nic in node.nics if nic.state != "down" and nic.address]
    if kind == "infiniband":
        fitting = [nic for nic in usable if nic.kind == "infiniband"]
        if not fitting and not wire_request.ip_only:
            return _nic(member, "ethernet", wire_request)  # RDMA needs no address; ranks rendezvous over Ethernet
    else:
        fitting = [nic for nic in usable if nic.kind in ("ethernet", "bond")]
        # Virtual machines and containers have only virtual interfaces.
        fitting = fitting or [nic for nic in usable if nic.kind == "virtual" and not nic.name.startswith(_INTERNAL)]
    if not fitting:
        names = ", ".join(f"{nic.name} ({nic.kind}, {nic.state})" for nic in node.nics if nic.kind != "loopback")
        raise RequestError(
            f"INTERCONNECT={kind} asked, {node.name} has no interface for it that is up and has an address "
            f"(it has {names or 'none'}); ask for another kind, or name one with IFACE=NAME"
        )
    return max(fitting, key=lambda nic: nic.speed_mbit or 0)


def _named_nic(node: Node, name: str, kind: WireKind, wire_request: WireRequest) -> Nic:
    """Return an interface by name. Raises RequestError if it is missing, down, or cannot be that kind of wire."""
    by_name = {nic.name: nic for nic in node.nics}
    where = f"IFACE={name} asked" if wire_request.iface else f"the hosts file names {name} for {kind}"
    if name not in by_name:
        raise RequestError(f"{where}, {node.name} has no such interface; it has {nearest(name, tuple(by_name))}")
    nic = by_name[name]
    if nic.state == "down":
        raise RequestError(f"{where}, which is down on {node.name}; bring it up, or ask for another with IFACE=NAME")
    # Whether the interface itself must carry the gradients: with IP, or if only its name was requested.
    carries = wire_request.ip_only or (wire_request.interconnect == "auto" and wire_request.hca is None)
    if (nic.kind == "infiniband") != (kind == "infiniband") and (carries or kind == "ethernet"):
        raise RequestError(
            f"{where}, but on {node.name} it is {nic.kind}, not {kind}; "
            "ask for that kind, or for another interface with IFACE=NAME"
        )
    return nic


def _hcas(member: Member, kind: WireKind, wire_request: WireRequest) -> tuple[Hca, ...]:
    """The active ports that RDMA of this kind can use, limited to those that were named. Raises RequestError if there are none."""
    node = member.node
    named = (wire_request.hca,) if wire_request.hca else member.network.hcas
    found = tuple(
        port
        for port in node.hcas
        if port.link_layer == _LINK_LAYERS[kind]
        and port.state == "ACTIVE"
        and (not named or port.name in named or f"{port.name}:{port.port}" in named)
    )
    if found:
        return found
    present = ", ".join(f"{port.name}:{port.port} {port.link_layer} {port.state}" for port in node.hcas) or "none"
    if wire_request.hca:
        raise RequestError(
            f"HCA={wire_request.hca} asked, {node.name} has no such active adapter (adapters: {present})"
        )
    raise RequestError(
        f"INTERCONNECT={kind} asked, {node.name} has no active adapter for it (adapters: {present}); "
        "check `dlscale doctor --hosts`, or ask for INTERCONNECT=ethernet"
    )
