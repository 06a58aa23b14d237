"""What the hosts file claims against what the nodes are. Pure."""

from __future__ import annotations

from runner.cluster.hosts.model import Host
from runner.core.errors import nearest
from runner.core.node import Node


def unmet(host: Host, node: Node, *, local: tuple[str, ...]) -> tuple[str, ...]:
    """What the hosts file claims and the node does not have, each as a sentence that names the node.

    Args:
        host: the claims.
        node: what was found.
        local: IPv4 addresses that the node has.
    """
    return (*_interfaces(host, node, local), *_adapters(host, node), *_devices(host, node))


def _interfaces(host: Host, node: Node, local: tuple[str, ...]) -> list[str]:
    names = [nic.name for nic in node.nics]
    found = []
    for role, interface in host.interfaces.items():
        if interface.name not in names:
            found.append(
                f"{host.name}: the hosts file names {interface.name} for {role}, and it has no such interface; "
                f"it has {nearest(interface.name, names)}"
            )
        elif interface.address and interface.address not in local:
            found.append(
                f"{host.name}: the hosts file gives {interface.name} the address {interface.address}, and it has no such address; "
                f"it has {', '.join(local) or 'none'}"
            )
    return found


def _adapters(host: Host, node: Node) -> list[str]:
    ports = [f"{hca.name}:{hca.port}" for hca in node.hcas]
    known = {*ports, *(hca.name for hca in node.hcas)}
    return [
        f"{host.name}: the hosts file names the adapter {name}, and it has none of that name; it has {', '.join(ports) or 'none'}"
        for name in host.hcas
        if name not in known
    ]


def _devices(host: Host, node: Node) -> list[str]:
    found = []
    there = max(len(node.gpus), len(node.cores))  # a slot is a GPU or a core, as the request has it
    if host.slots and host.slots > there:
        found.append(
            f"{host.name}: the hosts file gives it {host.slots} slots, and it has {there} devices; correct `slots`"
        )
    if host.gpus and host.gpus.count > len(node.gpus):
        why = f" ({node.gpu_reason})" if node.gpu_reason else ""
        found.append(
            f"{host.name}: the hosts file claims {host.gpus.count} GPUs, and it has {len(node.gpus)}{why}; correct `gpus`"
        )
    if host.cpus and host.cpus > len(node.cores):
        found.append(
            f"{host.name}: the hosts file claims {host.cpus} cpus, and it has {len(node.cores)}; correct `cpus`"
        )
    return found
