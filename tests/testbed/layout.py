"""Where everything of a rig is: names, addresses, paths and cores, which follow from its number and its nodes' numbers, and the contents of
its files: hosts.yaml, and the configuration of every node's engine and ssh server.

Rigs 0 to 9 are the user's; tests use other numbers, so that they never take down a user's rig. Values in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from runner.core.wire import Link, show_delay, show_rate

# Sockets, keys and configuration; like the rig, they do not survive a reboot. Short, because a socket's path has at most 107 bytes.
RUN: Final = Path("/run/dlscale-rig")
NAMESPACES: Final = Path("/run/netns")  # where `ip netns` keeps them
MOST_NODES: Final = 64
USERS: Final = range(10)
TESTS: Final = range(10, 20)

# A second interface: none, in the first one's network, or in a separate network.
Second = Literal["none", "same", "other"]
Way = Literal["ssh", "unix"]


@dataclass(frozen=True)
class RigNode:
    """One node of a rig."""

    name: str  # its name in hosts.yaml
    namespace: str  # its network namespace; also its containers' control group, below each hierarchy's root
    addresses: dict[str, str]  # IPv4 address by interface, `eth0` first
    cores: tuple[int, ...]  # logical CPUs for its containers
    run: Path  # sockets, configuration, process ids
    data: Path  # its engine's images and containers

    @property
    def address(self) -> str:
        """IPv4 address of `eth0`, where its ssh server listens. It is also its host name, because every resolver can resolve it."""
        return self.addresses["eth0"]

    @property
    def socket(self) -> Path:
        """Its engine's socket."""
        return self.run / "docker.sock"

    @property
    def host_name(self) -> Path:
        """The UTS namespace that holds its host name."""
        return self.run / "uts"

    def engine(self, way: Way) -> str:
        """URL of its engine: for other machines (ssh), or for this machine without a network (unix)."""
        return f"ssh://root@{self.address}:22{self.socket}" if way == "ssh" else f"unix://{self.socket}"

    def port_of(self, interface: str) -> str:
        """The switch's end of an interface's link."""
        return f"{self.name}{interface}"


@dataclass(frozen=True)
class Layout:
    """A whole rig."""

    number: int  # which of the machine's rigs
    second: Second  # whether every node has an `eth1`, and in which network
    nodes: tuple[RigNode, ...]
    data: Path  # directory of all nodes' images and containers

    @property
    def run(self) -> Path:
        """Directory of sockets, keys and configuration: `ssh_config` for `ssh -F`, and the private `key` that all nodes accept."""
        return run_directory(self.number)

    @property
    def switch(self) -> str:
        """Namespace of the bridges: in the machine's own namespace, Docker's firewall would drop the packets that they forward."""
        return f"{prefix(self.number)}sw"

    @property
    def bridges(self) -> dict[str, str]:
        """The bridge of each interface's links."""
        second = {"none": {}, "same": {"eth1": "br0"}, "other": {"eth1": "br1"}}
        return {"eth0": "br0", **second[self.second]}

    @property
    def networks(self) -> tuple[str, ...]:
        """Networks of the interfaces; the machine is in the first."""
        first, other = f"10.77.{self.number}.0/24", f"10.78.{self.number}.0/24"
        return (first, other) if self.second == "other" else (first,)

    @property
    def machine_address(self) -> str:
        """The machine's own address in the first network."""
        return f"10.77.{self.number}.1"

    def node(self, name: str) -> RigNode:
        return {node.name: node for node in self.nodes}[name]

    def hosts_file(self, *, way: Way = "ssh", nodes: int | None = None) -> Path:
        """Path of a hosts.yaml for all nodes or the first few, with engines over ssh or at their sockets."""
        words = ["hosts", *(["unix"] if way == "unix" else []), *([str(nodes)] if nodes else [])]
        return self.run / f"{'-'.join(words)}.yaml"


def prefix(number: int) -> str:
    """Prefix of the names of a rig's namespaces and control groups."""
    return f"dlrig{number}-"


def uplink(number: int) -> str:
    """The machine's own network interface into a rig."""
    return f"dlrig{number}"


def run_directory(number: int) -> Path:
    """A rig's directory of sockets, keys and configuration."""
    return RUN / str(number)


def data_directory(number: int, parent: Path) -> Path:
    """A rig's directory of images and containers; its name marks it as safe to delete."""
    return parent / f"dlscale-rig-{number}"


def plan(
    *, number: int, nodes: int, parent: Path, second: Second = "none", core_groups: Sequence[Sequence[int]] = ((0,),)
) -> Layout:
    """Assign a rig's names, addresses, paths and cores."""
    data = data_directory(number, parent)
    return Layout(
        number=number,
        second=second,
        data=data,
        nodes=tuple(
            RigNode(
                name=f"n{place}",
                namespace=f"{prefix(number)}n{place}",
                addresses=_addresses(number, place, second),
                cores=share(core_groups, nodes=nodes, place=place - 1),
                run=run_directory(number) / f"n{place}",
                data=data / f"n{place}",
            )
            for place in range(1, nodes + 1)
        ),
    )


def share(core_groups: Sequence[Sequence[int]], *, nodes: int, place: int) -> tuple[int, ...]:
    """Logical CPUs of one node: its share of the machine's cores, or a shared core if there are fewer cores than nodes.

    Example: ``share([(0, 4), (1, 5), (2, 6), (3, 7)], nodes=2, place=1)`` returns ``(2, 3, 6, 7)``.
    """
    cores = len(core_groups)
    own = (
        core_groups[place * cores // nodes : (place + 1) * cores // nodes]
        if cores >= nodes
        else [core_groups[place % cores]]
    )
    return tuple(sorted(cpu for group in own for cpu in group))


def _addresses(number: int, place: int, second: Second) -> dict[str, str]:
    addresses = {"eth0": f"10.77.{number}.{10 + place}"}
    if second == "same":
        addresses["eth1"] = f"10.77.{number}.{110 + place}"
    elif second == "other":
        addresses["eth1"] = f"10.78.{number}.{10 + place}"
    return addresses


# Settings of the machine's engine for GPUs and registries, which the nodes' engines need too.
_SHARED: Final = ("cdi-spec-dirs", "default-runtime", "features", "insecure-registries", "registry-mirrors", "runtimes")


def hosts_yaml(nodes: Sequence[RigNode], *, way: Way, link: Link | None, number: int) -> str:
    """Contents of a hosts.yaml, as expected by HOSTS."""
    content: dict[str, Any] = {"ssh_config": "ssh_config"} if way == "ssh" else {}
    if link:
        content["link"] = {
            **({"rate": show_rate(link.rate_mbit)} if link.rate_mbit is not None else {}),
            **({"delay": show_delay(link.delay_ms)} if link.delay_ms else {}),
            "emulated": True,
        }
    content["hosts"] = [
        {
            "name": node.name,
            "engine": node.engine(way),
            "cpus": len(node.cores),
            "interfaces": {"ethernet": {"name": "eth0", "address": node.address}},
        }
        for node in nodes
    ]
    header = f"# Rig {number}, written by `make rig`, which takes it down with NODES=0.\n"
    return header + yaml.safe_dump(content, sort_keys=False)


def ssh_config(layout: Layout) -> str:
    """The machine's ssh configuration for its nodes, by address or name, independent of the user's own configuration."""
    names = "\n\n".join(f"Host {node.name}\n  HostName {node.address}" for node in layout.nodes)
    return f"""{names}

Host *
  User root
  IdentityFile {layout.run / "key"}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {layout.run / "known_hosts"}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
"""


def known_hosts(keys: Mapping[str, str]) -> str:
    """The nodes' public host keys by address, in ssh's format."""
    return "".join(f"{address} {key.strip()}\n" for address, key in keys.items())


def sshd_config(node: RigNode, *, authorized: Path, pam: bool) -> str:
    """Configuration of a node's ssh server: accepts the rig's own key, and listens only on the node's address, unreachable from outside."""
    return f"""ListenAddress {node.address}:22
HostKey {node.run / "host_key"}
PidFile {node.run / "sshd.pid"}
AuthorizedKeysFile {authorized}
AuthenticationMethods publickey
PermitRootLogin prohibit-password
AllowUsers root
UsePAM {"yes" if pam else "no"}
UseDNS no
MaxStartups 100
MaxSessions 100
SetEnv DOCKER_HOST={node.engine("unix")}
"""


def containerd_config(node: RigNode) -> str:
    """Configuration of a node's own containerd: without one, a Docker engine shares the machine's containerd and its containers."""
    address = node.run / "containerd.sock"
    return f"""version = 2
root = "{node.data / "containerd"}"
state = "{node.run / "containerd"}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]

[grpc]
address = "{address}"

[ttrpc]
address = "{address}.ttrpc"
"""


def engine_config(node: RigNode, *, machine: Mapping[str, Any]) -> str:
    """Configuration of a node's Docker engine: no bridge, no firewall rules, containers in the node's own control group."""
    own = {
        "data-root": str(node.data / "docker"),
        "exec-root": str(node.run / "docker"),
        "pidfile": str(node.run / "dockerd.pid"),
        "hosts": [node.engine("unix")],
        "containerd": str(node.run / "containerd.sock"),
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "ip-forward": False,
        "ip-masq": False,
        # systemd's driver accepts only the names of its own units.
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": f"/{node.namespace}",
    }
    return json.dumps({key: machine[key] for key in _SHARED if key in machine} | own, indent=2)
