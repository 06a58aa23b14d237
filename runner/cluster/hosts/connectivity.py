"""Whether every pair of nodes can reach each other on the interface that a job would use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from runner.cluster.hosts import connectivity_probe
from runner.cluster.hosts.endpoint import engine_errors
from runner.cluster.hosts.survey import Surveyed, at_once, base_image
from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.engines.images import run_confined

_SECONDS: Final = 10.0
"""For containers that start one after the other on a busy node; all that is well ends at once."""
_PATIENCE_S: Final = 20
"""For each call to an engine: this is asked after a run that failed, when one of them may be why."""


class End(Protocol):
    """A node's end of a wire; `wire.Wire` is one."""

    @property
    def iface(self) -> str:
        """Interface."""

    @property
    def address(self) -> str:
        """IPv4 address of it."""


class _Answer(Frozen):
    """What `meet` prints."""

    state: str
    trouble: str | None
    results: Mapping[str, str | None]


def ends_of(surveyed: Sequence[Surveyed], wire: str | None) -> tuple[NodeEnd, ...]:
    """Each node's end of a wire.

    Args:
        surveyed: the nodes.
        wire: an interface's name, or a role of the hosts file; None for the role `ethernet`, else the first interface that is no
            loopback and has an address.

    Raises:
        RequestError: a node has no such interface, or that has no address.
    """
    return tuple(_end(seen, wire) for seen in surveyed)


@dataclass(frozen=True)
class NodeEnd:
    """An interface of a node and its address."""

    iface: str
    address: str


def _end(seen: Surveyed, wire: str | None) -> NodeEnd:
    roles = {str(role): interface for role, interface in seen.host.interfaces.items()}
    said = roles.get(wire or "ethernet")
    nics = {nic.name: nic for nic in seen.node.nics}
    if said is None and wire is None:
        able = [nic for nic in seen.node.nics if nic.address and nic.kind != "loopback"]
        if not able:
            raise RequestError(
                f"{seen.host.name}: no interface of it has an address; give it one, or name another host"
            )
        return NodeEnd(able[0].name, str(able[0].address))
    name = said.name if said else str(wire)
    if name not in nics:
        raise RequestError(
            f"{seen.host.name}: has no interface {name}; it has {', '.join(nics)} (roles in the hosts file: {', '.join(roles) or 'none'})"
        )
    address = (said.address if said else None) or nics[name].address
    if address is None:
        raise RequestError(f"{seen.host.name}: interface {name} has no address; give it one, or name another interface")
    return NodeEnd(name, address)


def reach(surveyed: Sequence[Surveyed], ends: Sequence[End]) -> tuple[Unreachable, ...]:
    """Let every node call every other at the same time; empty when all of them answer.

    Args:
        surveyed: the nodes.
        ends: the end of each, in the same order: from `ends_of`, or the wires of a plan.

    The nodes have been surveyed, so that the suite's base is there.
    """
    if len(surveyed) < 2:  # noqa: PLR2004 - a pair
        return ()
    reference = base_image().reference
    places = {seen.host.name: (end.address, seen.node.ports[-1]) for seen, end in zip(surveyed, ends, strict=True)}

    def meet_others(which: tuple[Surveyed, End]) -> _Answer:
        seen, end = which
        return _meet(seen, end, places, reference)

    answers = at_once(meet_others, tuple(zip(surveyed, ends, strict=True)))
    by_name = {seen.host.name: answer for seen, answer in zip(surveyed, answers, strict=True)}
    return tuple(
        Unreachable(
            source=name,
            target=other,
            iface=end.iface,
            source_state=_state(answer),
            target_state=_state(by_name[other]),
            reason=reason,
        )
        for (name, answer), end in zip(by_name.items(), ends, strict=True)
        for other in by_name
        if other != name and (reason := _reason(answer, by_name[other], other)) is not None
    )


def _state(answer: _Answer | RequestError) -> str | None:
    return None if isinstance(answer, RequestError) else answer.state


def _reason(answer: _Answer | RequestError, others: _Answer | RequestError, other: str) -> str | None:
    """Why a node did not reach another. One that could not take part is the reason, whatever the other saw of it."""
    for either in (answer, others):
        if isinstance(either, RequestError):
            return str(either)
    return None if isinstance(answer, RequestError) else answer.results.get(other)


def _meet(seen: Surveyed, end: End, places: Mapping[str, tuple[str, int]], reference: str) -> _Answer:
    name = seen.host.name
    own = {
        "name": name,
        "iface": end.iface,
        "address": end.address,
        "port": places[name][1],
        "peers": {peer: place for peer, place in places.items() if peer != name},
        "seconds": _SECONDS,
    }
    source = Path(connectivity_probe.__file__).read_text(encoding="utf-8")
    with engine_errors(seen.connection), seen.connection.patience(_PATIENCE_S):
        said = run_confined(seen.connection.client, reference, ("python3", "-c", source, json.dumps(own)))
    try:
        answer = _Answer.model_validate_json(said)
    except ValidationError as error:
        raise RequestError(
            f"{name}: the check of its wires can't be read ({said.strip()[-200:]}); look at its engine's log"
        ) from error
    if answer.trouble:
        raise RequestError(f"{name}: {answer.trouble}; compare the hosts file with its addresses")
    return answer


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
