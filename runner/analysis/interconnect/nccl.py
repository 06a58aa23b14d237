"""NCCL's own lines (INFO, subsystems INIT and NET) → what its channels go over. Pure.

The forms are those of NCCL 2.3 to 2.28; real lines of each are in tests/golden/nccl.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

# `nvls` are reductions within the NVLink switches, `other` is a network that a plugin brings, such as Amazon's.
Via = Literal["p2p", "nvls", "shm", "verbs", "socket", "other"]

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
# The interfaces: NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.1.0.1<0>
_SOCKETS: Final = re.compile(r"NET/Socket : Using (?P<list>.*)")
_SOCKET: Final = re.compile(r"\[(?P<device>\d+)\](?P<name>[^\s:]+):")


@dataclass(frozen=True)
class Channels:
    """What the channels of one or more ranks go over.

    Attributes:
        via: every kind that occurs.
        hcas: ports of RDMA adapters that channels use, `mlx5_0:1`.
        layers: their link layers in NCCL's words, `IB` or `RoCE`.
        interfaces: network interfaces that channels use.
    """

    via: frozenset[Via]
    hcas: tuple[str, ...] = ()
    layers: frozenset[str] = frozenset()
    interfaces: tuple[str, ...] = ()


def read_channels(lines: Sequence[str]) -> Channels:
    """Read the lines of one process; numbers of devices mean nothing beyond it."""
    joined = "\n".join(lines)
    adapters = {
        match["device"]: match for listed in _ADAPTERS.finditer(joined) for match in _ADAPTER.finditer(listed["list"])
    }
    # Every adapter is first a virtual device of its own, by its own number; those that join several come after them.
    groups = {match["device"]: names for match in _JOINED.finditer(joined) if "+" in (names := match["names"])}
    sockets = {
        match["device"]: match["name"]
        for listed in _SOCKETS.finditer(joined)
        for match in _SOCKET.finditer(listed["list"])
    }
    via: set[Via] = {"nvls"} if _NVLS.search(joined) else set()
    ports: dict[str, str] = {}
    interfaces: list[str] = []
    for channel in _CHANNEL.finditer(joined):
        device = channel["device"]
        if channel["p2p"]:
            via.add("p2p")
        elif channel["shm"]:
            via.add("shm")
        elif channel["verbs"]:
            via.add("verbs")
            names = groups[device].split("+") if device in groups else ()
            used = [match for key, match in adapters.items() if (match["name"] in names if names else key == device)]
            ports |= {f"{match['name']}:{match['port']}": match["layer"] for match in used}
        elif channel["socket"]:
            via.add("socket")
            interfaces += [sockets[device]] if device in sockets else []
        else:
            via.add("other")
    return Channels(
        via=frozenset(via),
        hcas=tuple(sorted(ports)),
        layers=frozenset(ports.values()),
        interfaces=tuple(dict.fromkeys(interfaces)),
    )


def join_channels(found: Sequence[Channels]) -> Channels:
    """What the channels of several processes go over together."""
    return Channels(
        via=frozenset().union(*(one.via for one in found)),
        hcas=tuple(sorted({hca for one in found for hca in one.hcas})),
        layers=frozenset().union(*(one.layers for one in found)),
        interfaces=tuple(dict.fromkeys(name for one in found for name in one.interfaces)),
    )
