"""The wires between the nodes of a job: kinds, interfaces, and the emulated `Link`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from runner.core.errors import shorten
from runner.core.frozen import Frozen

# "gbps" is not accepted: tc reads it as bytes a second, nearly everybody else as bits.
_MBIT: Final = {"bit": 1e-6, "kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "tbit": 1e6}
_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([a-z]+)", re.ASCII)

# tc's limits: its token bucket counts the bytes of a millisecond in 32 bits, netem counts microseconds in 32 bits.
_MAX_MBIT: Final = 1e7
_MAX_MS: Final = 1e6

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Link(Frozen):
    """The link of every node to the switch.

    Attributes:
        rate_mbit: limit on what a node sends, in megabits a second; None for no limit. Only its peers' limits bound what it receives,
            except in a testbed, which shapes both ends of a link.
        delay_ms: added to every outgoing packet, in milliseconds.
        emulated: whether software shapes the link; its figures then say nothing about a real wire.
    """

    rate_mbit: Positive | None = None
    delay_ms: NotNegative = 0.0
    emulated: bool

    @property
    def label(self) -> str:
        """The link in titles and tables: `emulated 1gbit 0.2ms`."""
        words = ["emulated"] if self.emulated else []
        words += [show_rate(self.rate_mbit)] if self.rate_mbit is not None else []
        words += [show_delay(self.delay_ms)] if self.delay_ms else []
        return " ".join(words)


def parse_rate(text: str) -> float:
    """Parse a rate in tc's notation, e.g. `1gbit` or `100mbit`, into megabits a second. Raises ValueError with an example."""
    rate = _parse(text, _MBIT)
    if rate is None or rate <= 0:
        raise ValueError(f"{text!r} is not a rate; write for example 1gbit or 100mbit")
    if rate > _MAX_MBIT:
        raise ValueError(f"{shorten(text)!r} is more than tc can limit a link to; write {show_rate(_MAX_MBIT)} or less")
    return rate


def parse_delay(text: str) -> float:
    """Parse a delay in tc's notation, e.g. `0.2ms` or `50us`, into milliseconds. Raises ValueError with an example."""
    delay = _parse(text, _MS)
    if delay is None:
        raise ValueError(f"{text!r} is not a delay; write for example 0.2ms or 50us")
    if delay > _MAX_MS:
        raise ValueError(
            f"{shorten(text)!r} is more than tc can delay a packet by; write {show_delay(_MAX_MS)} or less"
        )
    return delay


def show_rate(rate_mbit: float) -> str:
    """Format a rate for tc in the largest unit in which it is at least 1: 1000 becomes `1gbit`."""
    return _show(rate_mbit, _MBIT)


def show_delay(delay_ms: float) -> str:
    """Format a delay for tc: 0.2 becomes `200us`."""
    return _show(delay_ms, _MS)


def _parse(text: str, units: dict[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(text.strip().lower())
    return float(match[1]) * units[match[2]] if match and match[2] in units else None


def _show(value: float, units: dict[str, float]) -> str:
    fitting = [unit for unit, size in units.items() if value >= size] or [next(iter(units))]
    unit = fitting[-1]
    # A double preserves 15 decimal digits; more would show the rounding error of 0.2.
    return f"{value / units[unit]:.15g}{unit}"


WireKind = Literal["ethernet", "infiniband", "roce"]


class Wire(Frozen):
    """How the other nodes of a job reach a node: the interface that all libraries are bound to, and its address or host name.

    `hcas` are the RDMA adapters that NCCL may use, with their ports, e.g. `mlx5_0:1`; empty if the kernel's network stack drives the wire.
    """

    kind: WireKind
    iface: str
    address: str
    hcas: tuple[str, ...] = ()


class NodeWires(Frozen):
    """A node's network in the hosts file: interfaces by role, addresses by interface, and adapters; no adapters means all active ones."""

    roles: Mapping[WireKind, str] = {}
    addresses: Mapping[str, str] = {}
    hcas: tuple[str, ...] = ()


# The engine's name for the only interface of a container on a network.
IFACE: Final = "eth0"
