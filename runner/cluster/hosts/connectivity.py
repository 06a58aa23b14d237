"""Whether every pair of nodes can reach each other on the interface that a job would use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from runner.cluster.hosts import connectivity_probe
from runner.cluster.hosts.survey import Surveyed, ask_all
from runner.core.errors import RequestError
from runner.core.frozen import Frozen

_SECONDS: Final = 10.0  # for containers that start one after another on a busy node; success ends it immediately
_PATIENCE_S: Final = 20
"""Timeout of each call to an engine: the check may follow a failed run, of which a silent engine may be the cause."""


class NodeEnd(NamedTuple):
    """A node's end of a wire: an interface and its IPv4 address."""

    iface: str
    address: str


class _Answer(Frozen):
    """The output of a node's probe; if there is none, or the node could not listen, `state` is None and `trouble` a whole sentence."""

    state: str | None
    trouble: str | None
    results: Mapping[str, str | None]


def end_of(seen: Surveyed, wire: str | None) -> NodeEnd:
    """A node's end of a wire; raises RequestError if the interface does not exist or has no address.

    `wire` is an interface's name or a role of the hosts file. None stands for the role `ethernet`, else for the first interface, except
    a loopback, that has an address.
    """
    name = seen.host.name
    roles = {str(role): interface for role, interface in seen.host.interfaces.items()}
    named = roles.get(wire or "ethernet")
    if named is None and wire is None:
        usable = [nic for nic in seen.node.nics if nic.address and nic.kind != "loopback"]
        if not usable:
            raise RequestError(f"{name}: none of its interfaces has an address; assign one, or name another host")
        return NodeEnd(usable[0].name, str(usable[0].address))
    iface = named.name if named else str(wire)
    nics = {nic.name: nic for nic in seen.node.nics}
    if iface not in nics:
        raise RequestError(
            f"{name}: has no interface {iface}; it has {', '.join(nics)} (roles in the hosts file: {', '.join(roles) or 'none'})"
        )
    address = (named.address if named else None) or nics[iface].address
    if address is None:
        raise RequestError(f"{name}: interface {iface} has no address; assign one, or name another interface")
    return NodeEnd(iface, address)


def check_pairs(surveyed: Sequence[Surveyed], ends: Sequence[NodeEnd]) -> tuple[Unreachable, ...]:
    """Let surveyed nodes, each with its end of the wire, call each other concurrently; empty if all answer."""
    if len(surveyed) < 2:  # noqa: PLR2004 - a pair
        return ()
    by_name = {seen.host.name: (seen, end) for seen, end in zip(surveyed, ends, strict=True)}
    places = {name: (end.address, seen.node.ports[-1]) for name, (seen, end) in by_name.items()}
    replies = ask_all(lambda name: _probe(*by_name[name], places), tuple(by_name))
    answers = {
        name: _Answer(state=None, trouble=str(answer), results={}) if isinstance(answer, RequestError) else answer
        for name, answer in zip(by_name, replies, strict=True)
    }
    return tuple(
        Unreachable(
            source=name,
            target=other,
            iface=by_name[name][1].iface,
            source_state=answer.state,
            target_state=answers[other].state,
            reason=reason,
        )
        for name, answer in answers.items()
        for other in by_name
        # If either node could not take part, that is the reason, whatever the other one saw.
        if other != name and (reason := answer.trouble or answers[other].trouble or answer.results.get(other))
    )


def _probe(seen: Surveyed, end: NodeEnd, places: Mapping[str, tuple[str, int]]) -> _Answer:
    name = seen.host.name
    task = {
        "name": name,
        "iface": end.iface,
        "address": end.address,
        "port": places[name][1],
        "peers": {peer: place for peer, place in places.items() if peer != name},
        "seconds": _SECONDS,
    }
    source = Path(connectivity_probe.__file__).read_text(encoding="utf-8")
    output = seen.connection.ask(source, json.dumps(task), patience_s=_PATIENCE_S)
    try:
        answer = _Answer.model_validate_json(output)
    except ValidationError as error:
        raise RequestError(
            f"{name}: the output of its connectivity check can't be read ({output.strip()[-200:]}); see its engine's log"
        ) from error
    if answer.trouble:
        raise RequestError(f"{name}: {answer.trouble}; compare the hosts file with its addresses")
    return answer


_DOWN_STATES: Final = ("down", "lowerlayerdown", "missing", "notpresent")


@dataclass(frozen=True)
class Unreachable:
    """One node that could not reach another.

    Attributes:
        source_state, target_state: the kernel's operstate of their interfaces; None if the node's probe failed.
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
            if state in _DOWN_STATES
        )
        return f"{self.source} → {self.target} over {self.iface}: {self.reason}" + (f" ({states})" if states else "")


def explain(unreachable: Sequence[Unreachable]) -> str | None:
    """Name the node at fault in one sentence; None if every pair reached each other.

    At fault is a node whose probe failed, else one whose interface is down according to its kernel, else the only node that is in every failed
    pair; else all pairs are named.
    """
    if not unreachable:
        return None
    for pair in unreachable:
        if pair.source_state is None:
            return pair.reason
    iface_of = {pair.source: f" {pair.iface}" for pair in unreachable}
    for pair in unreachable:
        for name, state in ((pair.source, pair.source_state), (pair.target, pair.target_state)):
            if state in _DOWN_STATES:
                return f"{name}: its interface{iface_of.get(name, '')} is {state}, so {_others(unreachable, name)} can't reach it"
    common = set.intersection(*({pair.source, pair.target} for pair in unreachable))
    pairs = len({frozenset((pair.source, pair.target)) for pair in unreachable})
    if len(common) == 1 and pairs > 1:
        name = common.pop()
        return f"{name}: {_others(unreachable, name)} and it can't reach each other ({unreachable[0].reason})"
    return "; ".join(str(pair) for pair in unreachable)


def _others(unreachable: Sequence[Unreachable], name: str) -> str:
    nodes = {node for pair in unreachable if name in (pair.source, pair.target) for node in (pair.source, pair.target)}
    return ", ".join(sorted(nodes - {name}))
