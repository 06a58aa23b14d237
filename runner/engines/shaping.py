"""What holds a network interface to a `Link`, in the words of tc: a token bucket for the rate, `netem` for the delay. Pure.

Sources: tc-tbf(8), tc-netem(8).
"""

from __future__ import annotations

from typing import Final

from runner.core.wire import Link, show_delay, show_rate

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

    The delay comes first, as tc-netem(8) has it: the queue is then the token bucket's, and waiting in it adds to the delay.

    Args:
        link: the rate and delay; None for as fast as it is.
        delayed: whether packets are delayed here; on one end of a link alone, so that a packet is delayed once.
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
