"""Holds an emulated node to its link: short containers in the node's network namespace that run tc, and end before a job starts there.

They alone have NET_ADMIN, and it reaches no further than that namespace: no interface of the host is in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.wire import IFACE, Link, show_delay, show_rate
from runner.engines.base import Engine, EngineError

_ROOT: Final = "0:0"  # a capability added to a container is root's there
_MEMORY_MIB: Final = 64
_RUN: Final = "link-check"


def shapers(spec: ContainerSpec) -> tuple[ContainerSpec, ...]:
    """The containers that hold `spec` to its link, in order; none where it has no link, or one that is as fast as it can be."""
    made = {"node": spec.node, "image": spec.image, "network": f"container:{spec.name}", "run": spec.labels[LABEL_RUN]}
    return tuple(
        _tc(IFACE, words, name=f"{spec.name}-link{number}", number=number, **made)
        for number, words in enumerate(qdiscs(spec.link))
    )


def shape(engine: Engine, spec: ContainerSpec) -> None:
    """Hold a container that has started to its link; raises EngineError with tc's words where tc would not."""
    for helper in shapers(spec):
        if said := _failure(engine, helper):
            raise EngineError(f"its link could not be held to {spec.link.label if spec.link else 'nothing'} ({said})")


def check(engine: Engine, *, image: str, links: Iterable[Link]) -> None:
    """See whether the kernel below an engine can do what links need, in a network namespace that goes again at once.

    Raises RequestError with what to leave out.
    """
    for link in links:
        if link.rate_mbit is not None:
            part = Link(rate_mbit=link.rate_mbit, emulated=True)
            _check(engine, image, part, variable="LINK_RATE", value=show_rate(link.rate_mbit), kind="tbf")
        if link.delay_ms:
            part = Link(delay_ms=link.delay_ms, emulated=True)
            _check(engine, image, part, variable="LINK_DELAY", value=show_delay(link.delay_ms), kind="netem")


def _check(engine: Engine, image: str, part: Link, *, variable: str, value: str, kind: str) -> None:
    """See whether a link's rate, or its delay, can be had on a container's own loopback."""
    (words,) = qdiscs(part)
    name = f"dlscale-{_RUN}-{secrets.token_hex(4)}"
    asked = f"{variable}={value} asked"
    try:
        said = _failure(engine, _tc("lo", words, name=name, node="", image=image, network="none", run=_RUN))
    except EngineError as error:
        raise RequestError(f"{asked}, but {engine.name} does not start what sets it ({error})") from error
    if said:
        raise RequestError(
            f"{asked}, but the kernel below {engine.name} does not do it ({kind}: {said}); load its module sch_{kind}, or leave "
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
        user=_ROOT,
        network=network,
        net_admin=True,
        labels={LABEL_RUN: run, LABEL_ROLE: "tool"},
    )


def _failure(engine: Engine, spec: ContainerSpec) -> str | None:
    """Run a container to its end; what it said last if it failed, None if all went well."""
    container = engine.start(spec)
    try:
        said = [line.text for line in container.lines() if line.text.strip()]
        code = container.wait()
    finally:
        container.remove()
    return None if code == 0 else said[-1] if said else f"tc ended with code {code}"


# The bucket is what passes at full speed after a pause. It has to hold a packet as the sender hands it down (64 KiB of payload and the
# headers of its 46 segments, else each is cut up first), and what arrives while the sender's core does something else. Anything above
# that is a link faster than the one asked for: LeNet's gradients are 240 KiB. With these, one TCP stream between two namespaces ran at
# 95.6, 956 and 9,560 Mbit/s of payload with links of 100mbit, 1gbit and 10gbit; the most that Ethernet's headers leave is 95.6 %.
_PACKET_BYTES: Final = 72 * 1024
_AWAY_S: Final = 0.001
# How long a packet may queue before it is dropped: long enough that TCP is held back by its window and not by losses.
_QUEUE_S: Final = 0.2
_LARGEST_QUEUE_BYTES: Final = 2**30  # tc's own field ends at 2**32
_DELAYED_PACKETS: Final = 10_000  # netem's own 1,000 would drop at 1gbit and 20ms


def burst_bytes(rate_mbit: float) -> int:
    """Size of the token bucket for a rate."""
    return max(_PACKET_BYTES, round(_bytes_per_s(rate_mbit) * _AWAY_S))


def queue_bytes(rate_mbit: float) -> int:
    """Bytes that may wait for tokens at a rate."""
    return min(_LARGEST_QUEUE_BYTES, burst_bytes(rate_mbit) + round(_bytes_per_s(rate_mbit) * _QUEUE_S))


def qdiscs(link: Link | None, *, delayed: bool = True) -> tuple[tuple[str, ...], ...]:
    """What `tc qdisc replace dev INTERFACE` is followed by, one after the other, for what an interface sends.

    The delay comes first, as tc-netem(8) has it: the queue is then the token bucket's, and waiting in it adds to the delay. A packet is
    delayed once, on one end of a link.
    """
    delay_ms = link.delay_ms if link and delayed else 0.0
    rate_mbit = link.rate_mbit if link else None
    found: list[tuple[str, ...]] = []
    if delay_ms:
        found.append(("root", "handle", "1:", "netem", "delay", show_delay(delay_ms), "limit", str(_DELAYED_PACKETS)))
    if rate_mbit is not None:
        place = ("parent", "1:1", "handle", "10:") if delay_ms else ("root", "handle", "1:")
        size = ("burst", f"{burst_bytes(rate_mbit)}b", "limit", f"{queue_bytes(rate_mbit)}b")
        found.append((*place, "tbf", "rate", show_rate(rate_mbit), *size))
    return tuple(found)


def _bytes_per_s(rate_mbit: float) -> float:
    return rate_mbit * 1e6 / 8
