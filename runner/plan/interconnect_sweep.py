"""`--compare`: which wires there are to be compared.

Between hosts, every kind of network that all of them have. Between the GPUs of one machine, its own link, shared memory, and the
sockets that a program takes which finds neither. On a machine
with neither, two emulated nodes with links of usual rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from runner.cluster.machine.local_node import inspect_local
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError
from runner.core.node import Member, Node
from runner.core.request import Device, Interconnect, Request
from runner.core.wire import Link
from runner.plan.wire import KINDS, Wanted, choose_wires

# Fast Ethernet, Gigabit Ethernet, and what the machine itself can do.
RATES_MBIT: Final = (100.0, 1000.0, None)
NODES: Final = 2


def apply_defaults(request: Request, inspect: Callable[[], Node] = inspect_local) -> Request:
    """Ask for emulated nodes where a comparison names no hosts and the machine has no two GPUs to compare the links of.

    Raises:
        RequestError: what was asked does not go with several nodes.
    """
    if not request.compare or request.hosts or request.nodes or request.gpus or request.device == "gpu":
        return request
    if request.device is None and not request.workers and len(inspect().gpus) > 1:
        return request
    links = tuple(None if rate_mbit is None else Link(rate_mbit=rate_mbit, emulated=True) for rate_mbit in RATES_MBIT)
    emulated = request.model_copy(update={"nodes": NODES, "links": links, "workers": request.workers or (NODES,)})
    refuse_contradictions(emulated)
    return emulated


def kinds(request: Request, members: Sequence[Member], *, device: Device, ip_only: bool) -> tuple[Interconnect, ...]:
    """The kinds of wire to run over: those that were asked for, or with `--compare` all that are there.

    Args:
        request: what was asked.
        members: the nodes.
        device: what trains on them.
        ip_only: whether what carries the gradients speaks IP and nothing else.

    Raises:
        RequestError: there is nothing to compare.
    """
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
            choose_wires([(m.node, m.said) for m in members], Wanted(kind, request.iface, request.hca, ip_only))
        except RequestError:
            continue
        found.append(kind)
    if len(found) < 2:  # noqa: PLR2004 - a comparison
        raise RequestError(
            f"nothing to compare: {request.hosts or 'these nodes'} have {' and '.join(found) or 'no wire'} in common, and that is all; "
            "leave HOSTS out to compare emulated links on this machine"
        )
    return tuple(found)
