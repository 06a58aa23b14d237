"""What a run leaves about its wires: byte counters before and after, peers, NCCL's own lines, and rates that samplers saw of PCIe.

All of it is kept as told, and what nodes sent is added up.

Ranks of one node read the same counters, each at its own moment. Kept are the differences that each rank saw; added up is, for every
counter, the latest stop less the earliest start, once a node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from runner.core.events import Event
from runner.core.events.wires import Bytes, Nccl, Net
from runner.core.transport import Evidence, InterfaceTraffic, NvlinkTraffic, PcieTraffic, PeerTraffic, PortTraffic

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class NodeSent:
    """What one node sent in the measured windows, in bytes: by interface, and by port of its RDMA adapters."""

    interfaces: Mapping[str, int]
    ports: Mapping[str, int]


def collect(events: Sequence[Event], pcie: Sequence[PcieTraffic] = ()) -> Evidence:
    """Keep the evidence of a run for its record: what its ranks said, and what samplers saw of PCIe."""
    nets = [event for event in events if isinstance(event, Net)]
    lines = tuple(line for event in events if isinstance(event, Nccl) for line in event.lines)
    layers = {(net.node, name): port.link_layer for net in nets for name, port in net.ports.items()}
    ports = _differences((((net.node, name), net.where, port) for net in nets for name, port in net.ports.items()))
    nvlink = _differences(((gpu, net.where, link) for net in nets for gpu, link in net.nvlink.items()))
    return Evidence(
        traffic=_traffic(nets),
        nccl_lines=lines,
        ports=tuple(
            PortTraffic(
                node=node, port=port, link_layer=layers[node, port], rx_bytes=moved.rx_bytes, tx_bytes=moved.tx_bytes
            )
            for (node, port), moved in sorted(ports.items(), key=lambda item: (item[0][0] or "", item[0][1]))
        ),
        nvlink=tuple(
            NvlinkTraffic(gpu=gpu, rx_bytes=moved.rx_bytes, tx_bytes=moved.tx_bytes)
            for gpu, moved in sorted(nvlink.items(), key=lambda item: item[0])
        ),
        pcie=tuple(pcie),
        peers=tuple(
            PeerTraffic(
                rank=net.rank,
                node=net.node,
                local=peer.local,
                remote=peer.remote,
                port=peer.port,
                connections=peer.connections,
            )
            for net in sorted(nets, key=lambda net: net.rank)
            for peer in net.peers or ()
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
    ports = _differences(((net.node, name), net.where, port) for net in nets for name, port in net.ports.items())
    found: dict[str | None, NodeSent] = {}
    for node in dict.fromkeys(net.node for net in nets):
        sent: dict[str, int] = {}
        for (where, _, name), moved in interfaces.items():
            if where == node:
                sent[name] = sent.get(name, 0) + moved.tx_bytes
        own = {name: moved.tx_bytes for (where, name), moved in ports.items() if where == node}
        found[node] = NodeSent(interfaces=sent, ports=own)
    return found


def _traffic(nets: Sequence[Net]) -> tuple[InterfaceTraffic, ...]:
    """Difference of the interfaces' counters between the start and the stop of the measured windows, by rank."""
    counters = {(net.rank, net.where): net for net in nets}
    found = []
    for (rank, where), before in sorted(counters.items()):
        after = counters.get((rank, "stop"))
        if where == "start" and after:
            found += [
                InterfaceTraffic(
                    rank=rank,
                    interface=name,
                    rx_bytes=after.interfaces[name].rx_bytes - start.rx_bytes,
                    tx_bytes=after.interfaces[name].tx_bytes - start.tx_bytes,
                    node=before.node,
                )
                for name, start in sorted(before.interfaces.items())
                if name in after.interfaces
            ]
    return tuple(found)


def _differences(readings: Iterable[tuple[Key, str, Bytes]]) -> dict[Key, Bytes]:
    """By counter, its latest stop less its earliest start; left out where either is missing."""
    starts: dict[Key, Bytes] = {}
    stops: dict[Key, Bytes] = {}
    for key, where, counter in readings:
        found, pick = (starts, min) if where == "start" else (stops, max)
        known = found.get(key, counter)
        found[key] = Bytes(
            rx_bytes=pick(known.rx_bytes, counter.rx_bytes), tx_bytes=pick(known.tx_bytes, counter.tx_bytes)
        )
    return {
        key: Bytes(rx_bytes=stops[key].rx_bytes - start.rx_bytes, tx_bytes=stops[key].tx_bytes - start.tx_bytes)
        for key, start in starts.items()
        if key in stops
    }
