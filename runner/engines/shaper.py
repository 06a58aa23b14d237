"""Holds an emulated node to its link: short containers in the node's network namespace that run tc, and end before a job starts there.

They alone have NET_ADMIN, and it reaches no further than that namespace: no interface of the host is in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final, Protocol

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.wire import IFACE, Link, show_delay, show_rate
from runner.engines.base import Container, EngineError
from runner.engines.shaping import qdiscs

_ROOT: Final = "0:0"  # a capability added to a container is root's there
_MEMORY_MIB: Final = 64
_RUN: Final = "link-check"


class Starter(Protocol):
    """As much of an engine as is needed here."""

    @property
    def name(self) -> str:
        """The value of ENGINE that names it."""

    def start(self, spec: ContainerSpec) -> Container:
        """Create and start a container; raises EngineError."""


def shapers(spec: ContainerSpec) -> tuple[ContainerSpec, ...]:
    """The containers that hold `spec` to its link, in order; none where it has no link, or one that is as fast as it can be."""
    return tuple(
        _tc(
            ("tc", "qdisc", "replace", "dev", IFACE, *words),
            name=f"{spec.name}-link{number}",
            number=number,
            node=spec.node,
            image=spec.image,
            network=f"container:{spec.name}",
            run=spec.labels[LABEL_RUN],
        )
        for number, words in enumerate(qdiscs(spec.link))
    )


def shape(engine: Starter, spec: ContainerSpec) -> None:
    """Hold a container that has started to its link.

    Raises:
        EngineError: tc would not, with its words.
    """
    for helper in shapers(spec):
        if said := _failure(engine, helper):
            raise EngineError(f"its link could not be held to {spec.link.label if spec.link else 'nothing'} ({said})")


def check(engine: Starter, *, image: str, links: Iterable[Link]) -> None:
    """See whether the kernel below an engine can do what links need, in a network namespace that goes again at once.

    Args:
        engine: starts the containers.
        image: the tools' base, which the engine has.
        links: those that will be asked for.

    Raises:
        RequestError: it can't, with what to leave out.
    """
    for link in links:
        if link.rate_mbit is not None:
            part = Link(rate_mbit=link.rate_mbit, emulated=True)
            _check(engine, image, part, asked=f"LINK_RATE={show_rate(link.rate_mbit)}", kind="tbf")
        if link.delay_ms:
            part = Link(delay_ms=link.delay_ms, emulated=True)
            _check(engine, image, part, asked=f"LINK_DELAY={show_delay(link.delay_ms)}", kind="netem")


def _check(engine: Starter, image: str, part: Link, *, asked: str, kind: str) -> None:
    """See whether a link's rate, or its delay, can be had on a container's own loopback."""
    (words,) = qdiscs(part)
    helper = _tc(
        ("tc", "qdisc", "replace", "dev", "lo", *words),
        name=f"dlscale-{_RUN}-{secrets.token_hex(4)}",
        number=0,
        node="",
        image=image,
        network="none",
        run=_RUN,
    )
    try:
        said = _failure(engine, helper)
    except EngineError as error:
        raise RequestError(f"{asked} asked, but {engine.name} does not start what sets it ({error})") from error
    if said:
        raise RequestError(
            f"{asked} asked, but the kernel below {engine.name} does not do it ({kind}: {said}); load its module sch_{kind}, or leave "
            f"{asked.partition('=')[0]} out"
        )


def _tc(
    argv: tuple[str, ...], *, name: str, number: int, node: str, image: str, network: str, run: str
) -> ContainerSpec:
    return ContainerSpec(
        name=name,
        node=node,
        role="tool",
        number=number,
        image=image,
        argv=argv,
        env={},
        memory_mib=_MEMORY_MIB,
        shm_mib=1,
        tmp_mib=1,
        user=_ROOT,
        network=network,
        net_admin=True,
        labels={LABEL_RUN: run, LABEL_ROLE: "tool"},
    )


def _failure(engine: Starter, spec: ContainerSpec) -> str | None:
    """Run a container to its end; what it said last if it failed, None if all went well."""
    container = engine.start(spec)
    try:
        said = [line.text for line in container.lines() if line.text.strip()]
        code = container.wait()
    finally:
        container.remove()
    return None if code == 0 else said[-1] if said else f"tc ended with code {code}"
