"""Shapes an emulated node's link: short-lived containers in the node's network namespace run tc, and exit before a job starts there.

Only they have NET_ADMIN, and it reaches no further than that namespace, which contains no interface of the host.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.wire import IFACE, Link, show_delay, show_rate
from runner.engines.base import Engine, EngineError

_ROOT_USER: Final = "0:0"  # only root gets a capability that is added to a container
_MEMORY_MIB: Final = 64
_RUN: Final = "link-check"


def shapers(spec: ContainerSpec) -> tuple[ContainerSpec, ...]:
    """The containers that shape `spec`'s link, in order; none if it has no link or an unlimited one."""
    made = {"node": spec.node, "image": spec.image, "network": f"container:{spec.name}", "run": spec.labels[LABEL_RUN]}
    return tuple(
        _tc(IFACE, words, name=f"{spec.name}-link{number}", number=number, **made)
        for number, words in enumerate(qdiscs(spec.link))
    )


def shape(engine: Engine, spec: ContainerSpec) -> None:
    """Shape the link of a started container; raises EngineError in tc's words if tc fails."""
    for helper in shapers(spec):
        if last := _failure(engine, helper):
            raise EngineError(f"its link could not be held to {spec.link.label if spec.link else 'nothing'} ({last})")


def check(engine: Engine, *, image: str, links: Iterable[Link]) -> None:
    """Check that the kernel below an engine supports these links, in a network namespace that is removed immediately.

    Raises RequestError, which names the option to leave out.
    """
    for link in links:
        if link.rate_mbit is not None:
            single = Link(rate_mbit=link.rate_mbit, emulated=True)
            _check(engine, image, single, variable="LINK_RATE", value=show_rate(link.rate_mbit), kind="tbf")
        if link.delay_ms:
            single = Link(delay_ms=link.delay_ms, emulated=True)
            _check(engine, image, single, variable="LINK_DELAY", value=show_delay(link.delay_ms), kind="netem")


def _check(engine: Engine, image: str, link: Link, *, variable: str, value: str, kind: str) -> None:
    """Try a link's rate, or its delay, on a container's own loopback."""
    (words,) = qdiscs(link)
    name = f"dlscale-{_RUN}-{secrets.token_hex(4)}"
    requested = f"{variable}={value} asked"
    try:
        failure = _failure(engine, _tc("lo", words, name=name, node="", image=image, network="none", run=_RUN))
    except EngineError as error:
        raise RequestError(f"{requested}, but {engine.name} can't start the tc container ({error})") from error
    if failure:
        raise RequestError(
            f"{requested}, but the kernel of {engine.name} does not support it ({kind}: {failure}); load its module sch_{kind}, or leave "
            f"{variable} out"
        )


def _tc(
    device: str, words: tuple[str, ...], *, name: str, node: str, image: str, network: str, run: str, number: int = 0
) -> ContainerSpec:
    return ContainerSpec(
        name=name,
        node=node,
        role="tool",
        number=number,
        image=image,
        argv=("tc", "qdisc", "replace", "dev", device, *words),
        env={},
        memory_mib=_MEMORY_MIB,
        shm_mib=1,
        tmp_mib=1,
        user=_ROOT_USER,
        network=network,
        net_admin=True,
        labels={LABEL_RUN: run, LABEL_ROLE: "tool"},
    )


def _failure(engine: Engine, spec: ContainerSpec) -> str | None:
    """Run a container to its end; return its last output line if it failed, None if it succeeded."""
    container = engine.start(spec)
    try:
        output = [line.text for line in container.lines() if line.text.strip()]
        code = container.wait()
    finally:
        container.remove()
    return None if code == 0 else output[-1] if output else f"tc ended with code {code}"


# After a pause, a whole token bucket passes at full speed. It has to hold one packet as the sender passes it down (64 KiB of payload and the
# headers of its 46 segments; otherwise each packet is split first), and what arrives while the sender's core is busy elsewhere. Anything
# larger makes the link faster than requested: LeNet's gradients are 240 KiB. With these sizes, one TCP stream between two namespaces ran at
# 95.6, 956 and 9,560 Mbit/s of payload with links of 100mbit, 1gbit and 10gbit; the most that Ethernet's headers leave is 95.6 %.
_PACKET_BYTES: Final = 72 * 1024
_BUSY_S: Final = 0.001
# How long a packet may queue before it is dropped: long enough that TCP is limited by its window, not by losses.
_QUEUE_S: Final = 0.2
_LARGEST_QUEUE_BYTES: Final = 2**30  # tc's own field ends at 2**32
_DELAYED_PACKETS: Final = 10_000  # netem's default of 1,000 would drop packets at 1gbit and 20ms


def burst_bytes(rate_mbit: float) -> int:
    """Size of the token bucket for a rate."""
    return max(_PACKET_BYTES, round(_bytes_per_s(rate_mbit) * _BUSY_S))


def queue_bytes(rate_mbit: float) -> int:
    """Bytes that may wait for tokens at a rate."""
    return min(_LARGEST_QUEUE_BYTES, burst_bytes(rate_mbit) + round(_bytes_per_s(rate_mbit) * _QUEUE_S))


def qdiscs(link: Link | None, *, delayed: bool = True) -> tuple[tuple[str, ...], ...]:
    """Arguments after `tc qdisc replace dev INTERFACE`, one tuple per command, that shape what an interface sends.

    The delay comes first, as in tc-netem(8): the queue is then the token bucket's, and waiting in it adds to the delay. A packet is
    delayed once, at one end of a link.
    """
    delay_ms = link.delay_ms if link and delayed else 0.0
    rate_mbit = link.rate_mbit if link else None
    found: list[tuple[str, ...]] = []
    if delay_ms:
        found.append(("root", "handle", "1:", "netem", "delay", show_delay(delay_ms), "limit", str(_DELAYED_PACKETS)))
    if rate_mbit is not None:
        position = ("parent", "1:1", "handle", "10:") if delay_ms else ("root", "handle", "1:")
        size = ("burst", f"{burst_bytes(rate_mbit)}b", "limit", f"{queue_bytes(rate_mbit)}b")
        found.append((*position, "tbf", "rate", show_rate(rate_mbit), *size))
    return tuple(found)


def _bytes_per_s(rate_mbit: float) -> float:
    return rate_mbit * 1e6 / 8
