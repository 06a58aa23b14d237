"""One machine taken for several: its cores, memory and GPUs dealt out to nodes that have a network between them. Pure.

What makes such nodes real, a network namespace each, is `launch/emulated.py`; what holds their links to a rate, `shaper.py`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, TypeVar

from runner.core.errors import RequestError
from runner.core.node import Nic, Node
from runner.core.wire import IFACE

_MTU_BYTES: Final = 1500

_T = TypeVar("_T")


def emulated_nodes(node: Node, count: int) -> tuple[Node, ...]:
    """Deal a machine out to `count` nodes, named node1, node2 and so on.

    Each has cores and GPUs of its own, neighbours of each other, the first nodes one more where they can't be shared out equally; an
    equal part of the memory; and an interface whose address is the node's name. They share no ports, so each may use all that are free.

    Raises:
        RequestError: more nodes than cores.
    """
    if count > len(node.cores):
        raise RequestError(
            f"NODES={count} asked, {node.name} has {len(node.cores)} cores, and an emulated node takes one or more; "
            f"ask for NODES={len(node.cores)} or fewer"
        )
    cores, gpus = deal(node.cores, count), deal(node.gpus, count)
    none = node.gpu_reason or f"{node.name} has {len(node.gpus)} for {count} nodes"
    return tuple(
        node.model_copy(
            update={
                "name": name,
                "cores": cores[number],
                "cpu_quota": node.cpu_quota and node.cpu_quota / count,
                "memory_mib": node.memory_mib // count,
                "gpus": gpus[number],
                "gpu_reason": None if gpus[number] else none,
                "nics": (Nic(name=IFACE, state="up", speed_mbit=None, mtu=_MTU_BYTES, kind="virtual", address=name),),
                "hcas": (),
            }
        )
        for number, name in enumerate(f"node{number}" for number in range(1, count + 1))
    )


def deal(things: tuple[_T, ...], count: int) -> tuple[tuple[_T, ...], ...]:
    """Cut a row into `count` pieces whose lengths differ by one at the most, the longer ones first."""
    share, over = divmod(len(things), count)
    ends = [share * number + min(number, over) for number in range(count + 1)]
    return tuple(things[start:end] for start, end in pairwise(ends))
