"""Evidence of the wires that a run used, from its ranks, NCCL and PCIe samplers; and the bytes that its gradients need on each.

Evidence is kept as reported, and what nodes sent is summed: all ranks of a node read the same counters, each at its own moment, so that a
counter's traffic is its latest stop less its earliest start, once per node. NCCL's lines are those of its log (INFO, subsystems INIT and
NET) in the formats of NCCL 2.3 to 2.28; real lines, from 2.4 on, are in tests/golden/nccl.

NVLink is counted by NVML, per GPU; network interfaces, RDMA ports and the loopback by the kernel; PCIe by the run's samplers, as rates from
GPM or DCGM, or by NVML on GPUs without GPM: a bound, not a count of the measured time. Shared and process memory have no counter.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from runner.core.events import Bytes, Event, Nccl, Net, RunStart, Window
from runner.core.strategies import STRATEGIES
from runner.core.transport import (
    NAMES,
    Counted,
    CountedWire,
    Evidence,
    InterfaceTraffic,
    NvlinkTraffic,
    PcieTraffic,
    PeerTraffic,
    PortTraffic,
    carrier,
    size,
)
from runner.core.trial import Trial

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class NodeSent:
    """Bytes that one node sent in the measured windows, by interface, and by port of its RDMA adapters."""

    interfaces: Counter[str]
    ports: dict[str, int]


def collect(events: Sequence[Event], pcie: Sequence[PcieTraffic] = ()) -> Evidence:
    """Collect the evidence of a run for its record: reports of its ranks, and PCIe traffic from the samplers."""
    nets = sorted((event for event in events if isinstance(event, Net)), key=lambda net: net.rank)
    nodes = {net.rank: net.node for net in nets}
    layers = {(net.node, name): port.link_layer for net in nets for name, port in net.ports.items()}
    traffic = _differences(
        ((net.rank, name), net.where, counter) for net in nets for name, counter in net.interfaces.items()
    )
    nvlink = _differences((gpu, net.where, link) for net in nets for gpu, link in net.nvlink.items())
    ports = _ports(nets)
    return Evidence(
        traffic=tuple(
            InterfaceTraffic(rank=rank, interface=name, node=nodes[rank], **traffic[rank, name].model_dump())
            for rank, name in sorted(traffic)
        ),
        nccl_lines=tuple(line for event in events if isinstance(event, Nccl) for line in event.lines),
        ports=tuple(
            PortTraffic(node=node, port=port, link_layer=layers[node, port], **ports[node, port].model_dump())
            for node, port in sorted(ports, key=lambda place: (place[0] or "", place[1]))
        ),
        nvlink=tuple(NvlinkTraffic(gpu=gpu, **nvlink[gpu].model_dump()) for gpu in sorted(nvlink)),
        pcie=tuple(pcie),
        peers=tuple(
            PeerTraffic(rank=net.rank, node=net.node, **peer.model_dump()) for net in nets for peer in net.peers or ()
        ),
    )


def sent_by_node(events: Sequence[Event]) -> dict[str | None, NodeSent]:
    """Sum what each node sent, a lone node under None; network namespaces of one node have their own interfaces."""
    nets = [event for event in events if isinstance(event, Net)]
    interfaces = _differences(
        ((net.node, net.namespace, name), net.where, counter)
        for net in nets
        for name, counter in net.interfaces.items()
    )
    found = {net.node: NodeSent(interfaces=Counter(), ports={}) for net in nets}
    for (node, _, name), moved in interfaces.items():
        found[node].interfaces[name] += moved.tx_bytes
    for (node, name), moved in _ports(nets).items():
        found[node].ports[name] = moved.tx_bytes
    return found


def _ports(nets: Iterable[Net]) -> dict[tuple[str | None, str], Bytes]:
    return _differences(((net.node, name), net.where, port) for net in nets for name, port in net.ports.items())


def _differences(readings: Iterable[tuple[Key, str, Bytes]]) -> dict[Key, Bytes]:
    """By counter, its latest stop less its earliest start; left out if either is missing."""
    starts: dict[Key, list[Bytes]] = {}
    stops: dict[Key, list[Bytes]] = {}
    for key, where, counter in readings:
        (starts if where == "start" else stops).setdefault(key, []).append(counter)
    return {
        key: Bytes(
            rx_bytes=max(one.rx_bytes for one in stops[key]) - min(one.rx_bytes for one in own),
            tx_bytes=max(one.tx_bytes for one in stops[key]) - min(one.tx_bytes for one in own),
        )
        for key, own in starts.items()
        if key in stops
    }


# `nvls`: reductions within the NVLink switches; `other`: a network from a plugin, such as Amazon's.
Via = Literal["p2p", "nvls", "shm", "verbs", "socket", "other"]

_KINDS: Final[tuple[Via, ...]] = ("p2p", "shm", "verbs", "socket", "other")
# Channels: "via P2P/CUMEM/read", "via SHM/direct/direct", "via direct shared memory", "[send] via NET/IB/0/GDRDMA(PCI)", "via NET/Socket/3"
_CHANNEL: Final = re.compile(
    r"\bvia (?:(?P<p2p>P2P)|(?P<shm>SHM|direct shared memory)|NET/(?:(?P<verbs>IB\w*)|(?P<socket>Socket)|(?P<other>[^/\n]+))(?:/(?P<device>\d+))?)"
)
# NVLink SHARP's buffers are created and its tree connected on first use (from 2.22 on; before, with the communicator); that the switches
# offer it ("NVLS multicast support is available") does not show use. Neither line shows how many bytes it carried.
_NVLS: Final = re.compile(r"NVLS comm 0x|Connected NVLS tree")
# The adapters: NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
_ADAPTERS: Final = re.compile(r"NET/IB : Using (?P<list>[^;\n]*)")
_ADAPTER: Final = re.compile(r"\[(?P<device>\d+)\](?P<name>[\w.-]+):(?P<port>\d+)/(?P<layer>\w+)")
# Several adapters merged: NET/IB : Made virtual device [4] name=mlx5_0+mlx5_1 speed=800000 ndevs=2
_JOINED: Final = re.compile(r"NET/IB : Made virtual device \[(?P<device>\d+)\] name=(?P<names>[\w.+-]+)")


@dataclass(frozen=True)
class Channels:
    """What the channels of the ranks run over."""

    via: frozenset[Via]
    hcas: tuple[str, ...] = ()  # ports of RDMA adapters, `mlx5_0:1`
    layers: frozenset[str] = frozenset()  # their link layers as NCCL writes them, `IB` or `RoCE`


def read_channels(processes: Iterable[Sequence[str]]) -> Channels:
    """Parse the lines of each process; device numbers are local to a process."""
    via: set[Via] = set()
    ports: set[tuple[str, str]] = set()
    for lines in processes:
        joined = "\n".join(lines)
        listed = "\n".join(match["list"] for match in _ADAPTERS.finditer(joined))
        adapters = {match["device"]: match for match in _ADAPTER.finditer(listed)}
        # Each adapter is also a virtual device, with its own number; devices that merge several adapters come after these.
        groups = {match["device"]: names for match in _JOINED.finditer(joined) if "+" in (names := match["names"])}
        if _NVLS.search(joined):
            via.add("nvls")
        for channel in _CHANNEL.finditer(joined):
            kind = next(kind for kind in _KINDS if channel[kind])
            via.add(kind)
            if kind == "verbs":
                device = channel["device"]
                names = groups[device].split("+") if device in groups else ()
                used = [
                    match for key, match in adapters.items() if (match["name"] in names if names else key == device)
                ]
                ports |= {(f"{match['name']}:{match['port']}", match["layer"]) for match in used}
    return Channels(
        via=frozenset(via),
        hcas=tuple(sorted({port for port, _ in ports})),
        layers=frozenset(layer for _, layer in ports),
    )


# The fewest bytes of a gradient on the wire: fp16.
LEAST_GRADIENT_BYTES: Final = 2


def gradient_bytes(events: Sequence[Event]) -> int | None:
    """Bytes that each device contributes to the exchange of one step; None if the program does not report them."""
    return next((event.gradient_bytes for event in events if isinstance(event, RunStart)), None)


def measured_iterations(trial: Trial, events: Sequence[Event]) -> int:
    """Iterations between the two readings of the counters; the requested number if no window was reported."""
    ranks: Counter[int] = Counter()
    for event in events:
        if isinstance(event, Window):
            ranks[event.rank] += event.iterations
    return min(ranks.values(), default=trial.iterations)


def contributed_bytes(trial: Trial, events: Sequence[Event]) -> int | None:
    """Bytes that each device contributes in the measured windows; None without a `RunStart`, which tells the size of the model.

    Every device sends and receives at least this much, whatever the algorithm: its own part has to reach the others, and the sum has to
    reach it. If the program reports only its parameters, they are counted as fp16.
    """
    start = next((event for event in events if isinstance(event, RunStart)), None)
    if start is None:
        return None
    return (start.gradient_bytes or start.parameters * LEAST_GRADIENT_BYTES) * measured_iterations(trial, events)


def gradient_factor(trial: Trial) -> float:
    """Bytes that all nodes together send in a step ÷ bytes of the gradients; 0 on one node.

    A ring all-reduce over n ranks sends 2(n-1)/n of the gradients along each of its edges (nccl-tests, doc/PERFORMANCE.md), and one edge
    leaves each of the N nodes: 2N(n-1)/n. NCCL may use a tree instead, which sends 2(N-1), the same with one rank per node.

    Parameter servers, one on each of N nodes, hold 1/N of the weights each: each of the w workers sends its gradients to the other N-1 and
    gets the weights from them, 2w(N-1)/N in all.
    """
    nodes, ranks = len(trial.placement), trial.processes
    if nodes < 2:  # noqa: PLR2004 - nothing leaves a single node
        return 0.0
    if carrier(trial) == "ps-lite" or STRATEGIES[trial.strategy].parameter_servers:
        return 2 * ranks * (nodes - 1) / nodes
    return 2 * nodes * (ranks - 1) / ranks


def least_factor(trial: Trial) -> float:
    """`gradient_factor`, or that of a tree between the nodes if it sends less."""
    return min(gradient_factor(trial), 2.0 * (len(trial.placement) - 1))


def minimum_bytes(trial: Trial, events: Sequence[Event]) -> int | None:
    """Bytes that must cross between the nodes, or between the devices of one, in the measured windows; None as in `contributed_bytes`.

    No all-reduce over N of them can send less than 2(N-1) times the gradients (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
    for clusters of workstations", 2009). Parameter servers alongside their workers send 2N times the gradients.
    """
    own = contributed_bytes(trial, events)
    parties = len(trial.placement) if len(trial.placement) > 1 else trial.world_size
    return None if own is None else 2 * (parties - 1) * own


def in_words(counts: Sequence[Counted]) -> str:
    """Describe the wires: `NVLink carried 24.9 GB a GPU (the gradients need 16.6 GB), PCIe 31 MB a GPU (11.6 GB)`."""
    first, *others = counts
    described = [f"{NAMES[first.wire]} carried {first.amount} (the gradients need {size(first.needed)})"]
    return ", ".join([*described, *(f"{NAMES[one.wire]} {one.amount} ({size(one.needed)})" for one in others)])


def nvlink(evidence: Evidence, own: Collection[str], *, devices: int, needed: int) -> Counted | None:
    """NVLink traffic at each GPU of a run; None if one of its `devices` was not counted.

    `own` are the UUIDs of the GPUs that the run used, empty if unknown. `needed`: bytes that the gradients need at each.
    """
    traffic = [(link.rx_bytes, link.tx_bytes) for link in evidence.nvlink if not own or link.gpu in own]
    if len(traffic) < max(devices, 1):
        return None
    return _counted("nvlink", traffic, least=min(map(min, traffic)), needed=needed)


def pcie(evidence: Evidence, own: Collection[str], *, devices: int, needed: int) -> Counted | None:
    """PCIe traffic at each GPU of a run in the sampled part of the measured time; None if a GPU was not sampled."""
    slots = [slot for slot in evidence.pcie if not own or slot.gpu in own]
    if not slots or len(slots) < devices:
        return None
    share = min(slot.share for slot in slots)
    traffic = [(slot.rx_bytes, slot.tx_bytes) for slot in slots]
    return _counted("pcie", traffic, least=min(map(max, traffic)), needed=round(share * needed), share=share)


def _counted(
    wire: CountedWire, traffic: Sequence[tuple[int, int]], *, least: int, needed: int, share: float = 1.0
) -> Counted:
    """A wire's traffic from the (received, sent) bytes at each place."""
    return Counted(
        wire=wire,
        places=len(traffic),
        least=least,
        most=max(map(max, traffic)),
        sent=math.fsum(sent for _, sent in traffic) / len(traffic),
        needed=needed,
        share=share,
    )


def loopback(nodes: Iterable[NodeSent], *, needed: int) -> Counted | None:
    """Loopback traffic of the only node; None if it was not counted."""
    moved = [node.interfaces["lo"] for node in nodes if "lo" in node.interfaces]
    return node_traffic("loopback", [sum(moved)], needed=needed) if moved else None


def node_traffic(wire: CountedWire, moved: Sequence[int], *, needed: int) -> Counted:
    """A wire's traffic from what each node sent."""
    return _counted(wire, [(sent, sent) for sent in moved], least=min(moved), needed=needed)
