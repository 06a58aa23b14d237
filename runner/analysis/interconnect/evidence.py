"""What a run leaves about its wires: byte counters before and after, peers, NCCL's own lines, and rates that samplers saw of PCIe.

All of it is kept as told, and what nodes sent is added up: ranks of one node read the same counters, each at its own moment, so that of
every counter it is the latest stop less the earliest start, once a node. NCCL's lines are those of its log (INFO, subsystems INIT and NET)
in the forms of NCCL 2.3 to 2.28; real lines of each are in tests/golden/nccl.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from runner.core.events import Bytes, Event, Nccl, Net
from runner.core.transport import Evidence, InterfaceTraffic, NvlinkTraffic, PcieTraffic, PeerTraffic, PortTraffic

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class NodeSent:
    """What one node sent in the measured windows, in bytes: by interface, and by port of its RDMA adapters."""

    interfaces: Counter[str]
    ports: dict[str, int]


def collect(events: Sequence[Event], pcie: Sequence[PcieTraffic] = ()) -> Evidence:
    """Keep the evidence of a run for its record: what its ranks said, and what samplers saw of PCIe."""
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
    """Add up what each node sent, the only one under None; network namespaces of one node count interfaces of their own."""
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
    """What crossed each port of each node's RDMA adapters."""
    return _differences(((net.node, name), net.where, port) for net in nets for name, port in net.ports.items())


def _differences(readings: Iterable[tuple[Key, str, Bytes]]) -> dict[Key, Bytes]:
    """By counter, its latest stop less its earliest start; left out where either is missing."""
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


# `nvls` are reductions within the NVLink switches, `other` is a network that a plugin brings, such as Amazon's.
Via = Literal["p2p", "nvls", "shm", "verbs", "socket", "other"]

_KINDS: Final[tuple[Via, ...]] = ("p2p", "shm", "verbs", "socket", "other")
# Channels: "via P2P/CUMEM/read", "via SHM/direct/direct", "via direct shared memory", "[send] via NET/IB/0/GDRDMA(PCI)", "via NET/Socket/3"
_CHANNEL: Final = re.compile(
    r"\bvia (?:(?P<p2p>P2P)|(?P<shm>SHM|direct shared memory)|NET/(?:(?P<verbs>IB\w*)|(?P<socket>Socket)|(?P<other>[^/\n]+))(?:/(?P<device>\d+))?)"
)
# Buffers of NVLink SHARP are made, and its tree connected, when it is first used (from 2.22 on; before, with the communicator); that the
# switches offer it ("NVLS multicast support is available") says nothing of use. Neither says how many bytes it carried.
_NVLS: Final = re.compile(r"NVLS comm 0x|Connected NVLS tree")
# The adapters: NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
_ADAPTERS: Final = re.compile(r"NET/IB : Using (?P<list>[^;\n]*)")
_ADAPTER: Final = re.compile(r"\[(?P<device>\d+)\](?P<name>[\w.-]+):(?P<port>\d+)/(?P<layer>\w+)")
# Several of them as one: NET/IB : Made virtual device [4] name=mlx5_0+mlx5_1 speed=800000 ndevs=2
_JOINED: Final = re.compile(r"NET/IB : Made virtual device \[(?P<device>\d+)\] name=(?P<names>[\w.+-]+)")


@dataclass(frozen=True)
class Channels:
    """What the channels of the ranks go over."""

    via: frozenset[Via]
    hcas: tuple[str, ...] = ()  # ports of RDMA adapters, `mlx5_0:1`
    layers: frozenset[str] = frozenset()  # link layers of these in NCCL's words, `IB` or `RoCE`


def read_channels(processes: Iterable[Sequence[str]]) -> Channels:
    """Read the lines of each process; numbers of devices mean nothing beyond it."""
    via: set[Via] = set()
    ports: set[tuple[str, str]] = set()
    for lines in processes:
        joined = "\n".join(lines)
        listed = "\n".join(match["list"] for match in _ADAPTERS.finditer(joined))
        adapters = {match["device"]: match for match in _ADAPTER.finditer(listed)}
        # Every adapter is first a virtual device of its own, by its own number; those that join several come after them.
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
