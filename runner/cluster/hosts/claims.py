"""What the hosts file claims of a node: taken for the node itself where nobody asks it, and held against what it is where it was asked. Pure."""

from __future__ import annotations

from typing import Final

from runner.cluster.hosts.model import Host
from runner.core.errors import RequestError, nearest
from runner.core.node import Gpu, Hca, Nic, Node

# Where the kernel of a node that is asked finds free ports too: the plan's are examples.
_PORTS: Final = tuple(range(40000, 40064))


def declared_node(host: Host) -> Node:
    """The node that a host would be if it has what the list claims, for planning without contact.

    Raises:
        RequestError: the list does not say how many CPUs the host has, or what its GPUs can run.
    """
    if host.cpus is None:
        raise RequestError(
            f"{host.name} was not asked what it has, and nothing says how many CPUs that is, so nothing can be planned for it; "
            "write a hosts.yaml with `cpus: N` for each host"
        )
    gpus = _gpus(host)
    return Node(
        name=host.name,
        cores=tuple(range(host.cpus)),
        cpu_quota=None,
        cpu_model=None,
        memory_mib=host.memory_mib or 0,
        gpus=gpus,
        gpu_reason=None if gpus else "its hosts file claims none",
        nics=tuple(
            Nic(
                name=interface.name,
                state="up",
                speed_mbit=None,
                mtu=0,
                kind="infiniband" if role == "infiniband" else "ethernet",
                address=interface.address,
            )
            for role, interface in host.interfaces.items()
        ),
        hcas=tuple(_hca(name, host) for name in host.hcas),
        driver=host.driver,
        cuda_driver=None,
        ports=_PORTS,
    )


def _gpus(host: Host) -> tuple[Gpu, ...]:
    claim = host.gpus
    if not claim or not claim.count:
        return ()
    if claim.compute_capability is None:
        raise RequestError(
            f"{host.name} was not asked and its hosts file claims {claim.count} GPUs without their compute_capability, which decides "
            f'what runs on them; add for example `compute_capability: "6.0"`'
        )
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{host.name}-{index}",
            name=claim.model or "unnamed GPU",
            memory_mib=claim.memory_mib or 0,
            compute_capability=claim.compute_capability,
            nvlinks=claim.nvlinks,
        )
        for index in range(claim.count)
    )


def _hca(name: str, host: Host) -> Hca:
    adapter, _, port = name.partition(":")
    layer = "InfiniBand" if "infiniband" in host.interfaces or "roce" not in host.interfaces else "Ethernet"
    return Hca(name=adapter, port=int(port or 1), state="ACTIVE", link_layer=layer, rate="unknown")


def unmet(host: Host, node: Node, *, local: tuple[str, ...]) -> tuple[str, ...]:
    """What the hosts file claims and the node, whose IPv4 addresses are `local`, does not have; each a sentence that names it."""
    nics = [nic.name for nic in node.nics]
    found = []
    for role, interface in host.interfaces.items():
        if interface.name not in nics:
            has = nearest(interface.name, nics)
            found.append(f"names {interface.name} for {role}, and it has no such interface; it has {has}")
        elif interface.address and interface.address not in local:
            has = ", ".join(local) or "none"
            found.append(
                f"gives {interface.name} the address {interface.address}, and it has no such address; it has {has}"
            )
    ports = [f"{hca.name}:{hca.port}" for hca in node.hcas]
    for name in host.hcas:
        if name not in {*ports, *(hca.name for hca in node.hcas)}:
            has = ", ".join(ports) or "none"
            found.append(f"names the adapter {name}, and it has none of that name; it has {has}")
    gpus, cores = len(node.gpus), len(node.cores)
    devices = max(gpus, cores)  # a slot is a GPU or a core, as the request has it
    why = f" ({node.gpu_reason})" if node.gpu_reason else ""
    claimed = host.gpus.count if host.gpus else 0
    counts = (
        (host.slots, devices, f"gives it {host.slots} slots, and it has {devices} devices; correct `slots`"),
        (claimed, gpus, f"claims {claimed} GPUs, and it has {gpus}{why}; correct `gpus`"),
        (host.cpus, cores, f"claims {host.cpus} cpus, and it has {cores}; correct `cpus`"),
    )
    found += [sentence for count, there, sentence in counts if count and count > there]
    return tuple(f"{host.name}: the hosts file {sentence}" for sentence in found)
