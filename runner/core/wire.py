"""The wires between the nodes of a job: kinds, interfaces, and the emulated `Link`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from runner.core.errors import shorten
from runner.core.frozen import Frozen

# "1gbps" is no unit here: to tc it means bytes, to nearly everybody else bits.
_MBIT: Final = {"bit": 1e-6, "kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "tbit": 1e6}
_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([a-z]+)", re.ASCII)

# What tc takes: its token bucket counts bytes of a millisecond in 32 bits, netem microseconds in as many.
_MOST_MBIT: Final = 1e7
_MOST_MS: Final = 1e6

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Link(Frozen):
    """The link of every node to the switch.

    Attributes:
        rate_mbit: megabits a second that a node sends at the most; None for as fast as it is. What it receives is held by those who
            send; a rig's links, whose both ends are its own, hold that too.
        delay_ms: added to every packet on its way out, in milliseconds.
        emulated: whether software shapes it, so that its figures are none of a real wire.
    """

    rate_mbit: Positive | None = None
    delay_ms: NotNegative = 0.0
    emulated: bool

    @property
    def label(self) -> str:
        """For titles and tables: `emulated 1gbit 0.2ms`."""
        words = ["emulated"] if self.emulated else []
        words += [show_rate(self.rate_mbit)] if self.rate_mbit is not None else []
        words += [show_delay(self.delay_ms)] if self.delay_ms else []
        return " ".join(words)


def parse_rate(text: str) -> float:
    """Read a rate in tc's words, e.g. `1gbit` or `100mbit`, as megabits a second; all else is a ValueError that ends with an example."""
    rate = _parse(text, _MBIT)
    if rate is None or rate <= 0:
        raise ValueError(f"{text!r} is no rate; write for example 1gbit or 100mbit")
    if rate > _MOST_MBIT:
        raise ValueError(f"{shorten(text)!r} is more than tc can hold a link to; write {show_rate(_MOST_MBIT)} or less")
    return rate


def parse_delay(text: str) -> float:
    """Read a delay in tc's words, e.g. `0.2ms` or `50us`, as milliseconds; all else is a ValueError that ends with an example."""
    delay = _parse(text, _MS)
    if delay is None:
        raise ValueError(f"{text!r} is no delay; write for example 0.2ms or 50us")
    if delay > _MOST_MS:
        raise ValueError(
            f"{shorten(text)!r} is more than tc can delay a packet by; write {show_delay(_MOST_MS)} or less"
        )
    return delay


def show_rate(rate_mbit: float) -> str:
    """Write a rate as tc reads it, in the largest unit that it has one of: 1000 gives `1gbit`."""
    return _show(rate_mbit, _MBIT)


def show_delay(delay_ms: float) -> str:
    """Write a delay as tc reads it: 0.2 gives `200us`."""
    return _show(delay_ms, _MS)


def _parse(text: str, units: dict[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(text.strip().lower())
    return float(match[1]) * units[match[2]] if match and match[2] in units else None


def _show(value: float, units: dict[str, float]) -> str:
    fitting = [unit for unit, size in units.items() if value >= size] or [next(iter(units))]
    unit = fitting[-1]
    # A float carries 15 digits faithfully; more would show how 0.2 is stored.
    return f"{value / units[unit]:.15g}{unit}"


WireKind = Literal["ethernet", "infiniband", "roce"]


class Wire(Frozen):
    """How the other nodes of a job reach one of them: the interface that all libraries are bound to, its address or a name that leads there.

    `hcas` are the RDMA adapters that NCCL may use, `mlx5_0:1` with the port; none for a wire that is driven through the kernel alone.
    """

    kind: WireKind
    iface: str
    address: str
    hcas: tuple[str, ...] = ()


class NodeWires(Frozen):
    """What the hosts file says of a node: interfaces by role, addresses by interface, and adapters; none for all that are active."""

    roles: Mapping[WireKind, str] = {}
    addresses: Mapping[str, str] = {}
    hcas: tuple[str, ...] = ()


# What the engine calls the one interface of a container that has a network.
IFACE: Final = "eth0"
