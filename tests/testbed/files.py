"""The texts that a rig writes: its hosts.yaml, and the configuration of every node's engine and ssh server. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from runner.core.wire import Link, show_delay, show_rate
from testbed.layout import Layout, RigNode, Way

# What the machine's own engine is told about GPUs and registries holds for the nodes' engines too.
_SHARED: Final = ("cdi-spec-dirs", "default-runtime", "features", "insecure-registries", "registry-mirrors", "runtimes")


def hosts_yaml(nodes: Sequence[RigNode], *, way: Way, link: Link | None, number: int) -> str:
    """The list of nodes as HOSTS takes it."""
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
    """How the machine logs in to its nodes, by address or by name, without a look at the user's own configuration."""
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
    """The nodes' public host keys by address, as ssh reads them."""
    return "".join(f"{address} {key.strip()}\n" for address, key in keys.items())


def sshd_config(node: RigNode, *, authorized: Path, pam: bool) -> str:
    """A node's ssh server: for the rig's own key, at the node's own address, in reach of nobody outside of the machine."""
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
    """A node's own containerd: a Docker engine that is not given one shares the machine's, and its containers with it."""
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
    """A node's Docker engine: no bridge, no firewall rules, containers in the node's own control group."""
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
        # The other driver, systemd's, takes the names of its own units only.
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": f"/{node.namespace}",
    }
    return json.dumps({key: machine[key] for key in _SHARED if key in machine} | own, indent=2)
