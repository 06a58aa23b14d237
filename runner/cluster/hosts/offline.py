"""A node as its list describes it, for planning without contact: `make plan` on a laptop for a cluster that is elsewhere."""

from __future__ import annotations

from typing import Final

from runner.cluster.hosts.model import Host
from runner.core.errors import RequestError
from runner.core.node import Gpu, Hca, Nic, NicKind, Node

# Where the kernel of a node that is asked finds free ports too: the plan's are examples.
_PORTS: Final = tuple(range(40000, 40064))


def declared_node(host: Host) -> Node:
    """The node that a host would be if it has what the list claims, and all of that works.

    Raises:
        RequestError: the list does not say how many CPUs the host has, or what its GPUs can run.
    """
    if host.cpus is None:
        raise RequestError(
            f"{host.name} was not asked what it has, and nothing says how many CPUs that is, so nothing can be planned for it; "
            "write a hosts.yaml with `cpus: N` for each host"
        )
    return Node(
        name=host.name,
        cores=tuple(range(host.cpus)),
        cpu_quota=None,
        cpu_model=None,
        memory_mib=host.memory_mib or 0,
        gpus=(gpus := _gpus(host)),
        gpu_reason=None if gpus else "its hosts file claims none",
        nics=tuple(
            Nic(
                name=interface.name,
                state="up",
                speed_mbit=None,
                mtu=0,
                kind=_KINDS.get(role, "ethernet"),
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


_KINDS: Final[dict[str, NicKind]] = {"infiniband": "infiniband"}


def _hca(name: str, host: Host) -> Hca:
    adapter, _, port = name.partition(":")
    layer = "InfiniBand" if "infiniband" in host.interfaces or "roce" not in host.interfaces else "Ethernet"
    return Hca(name=adapter, port=int(port or 1), state="ACTIVE", link_layer=layer, rate="unknown")
