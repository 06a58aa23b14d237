"""Pairs of nodes that did not meet, and whose fault that is. Pure: `reach` has them try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LOWER: Final = ("down", "lowerlayerdown", "missing", "notpresent")


@dataclass(frozen=True)
class Unreachable:
    """One node that could not reach another.

    Attributes:
        source, target: the nodes' names.
        iface: the source's interface.
        source_state, target_state: the kernel's operstate of their interfaces; None where nobody could look.
        reason: in the words of the operating system, or of the source's engine.
    """

    source: str
    target: str
    iface: str
    source_state: str | None
    target_state: str | None
    reason: str

    def __str__(self) -> str:
        states = ", ".join(
            f"{name}'s interface is {state}"
            for name, state in ((self.source, self.source_state), (self.target, self.target_state))
            if state in _LOWER
        )
        return f"{self.source} → {self.target} over {self.iface}: {self.reason}" + (f" ({states})" if states else "")


def explain(unreachable: Sequence[Unreachable]) -> str | None:
    """Name the node at fault in one sentence; None when every pair met.

    A node whose engine does not answer is the fault, or whose interface its kernel calls down; else the node that is in every pair that
    failed; else all pairs are named.
    """
    if not unreachable:
        return None
    for pair in unreachable:
        if pair.source_state is None:
            return pair.reason
    own = {pair.source: f" {pair.iface}" for pair in unreachable}
    for pair in unreachable:
        for name, state in ((pair.source, pair.source_state), (pair.target, pair.target_state)):
            if state in _LOWER:
                return f"{name}: its interface{own.get(name, '')} is {state}, so {_others(unreachable, name)} can't reach it"
    common = set.intersection(*({pair.source, pair.target} for pair in unreachable))
    pairs = len({frozenset((pair.source, pair.target)) for pair in unreachable})
    if len(common) == 1 and pairs > 1:
        name = common.pop()
        return f"{name}: {_others(unreachable, name)} and it can't reach each other ({unreachable[0].reason})"
    return "; ".join(str(pair) for pair in unreachable)


def _others(unreachable: Sequence[Unreachable], name: str) -> str:
    nodes = {node for pair in unreachable if name in (pair.source, pair.target) for node in (pair.source, pair.target)}
    return ", ".join(sorted(nodes - {name}))
