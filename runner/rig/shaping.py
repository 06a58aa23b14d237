"""A link's rate and delay in tc's words: a token bucket for the rate, `netem` for the delay. Pure.

Sources: tc-tbf(8), tc-netem(8).
"""

from __future__ import annotations

from typing import Final

from runner.link import Link, show_delay, show_rate

# The bucket must hold what arrives between two ticks of the kernel's clock (4 ms at the usual 250 Hz), else the rate is not reached;
# and at least a few of the 64 KiB segments that TCP hands down as one.
_TICK_S: Final = 0.004
_SMALLEST_BUCKET_KB: Final = 256
# How long a packet may queue before it is dropped: long enough that TCP is held back by its window and not by losses.
_QUEUE_MS: Final = 200
_DELAYED_PACKETS: Final = 10_000  # netem's own 1,000 would drop at 1 Gb/s and 20 ms


def bucket_kb(rate_mbit: float) -> int:
    """Size of the token bucket for a rate, in tc's kb (1,024 bytes)."""
    return max(_SMALLEST_BUCKET_KB, round(rate_mbit * 1e6 / 8 * _TICK_S / 1024))


def qdiscs(link: Link | None, *, delayed: bool) -> tuple[tuple[str, ...], ...]:
    """What `tc qdisc replace dev DEVICE` is followed by, for one end of a link; nothing when it is as fast as it can be.

    Args:
        link: the rate and delay.
        delayed: whether packets that leave this end are delayed; one end of two, so that a packet is delayed once.
    """
    delay_ms = link.delay_ms if link and delayed else 0.0
    rate_mbit = link.rate_mbit if link else None
    found: list[tuple[str, ...]] = []
    if delay_ms:
        found.append(("root", "handle", "1:", "netem", "delay", show_delay(delay_ms), "limit", str(_DELAYED_PACKETS)))
    if rate_mbit is not None:
        place = ("parent", "1:1", "handle", "10:") if delay_ms else ("root", "handle", "1:")
        bucket = (
            "tbf",
            "rate",
            show_rate(rate_mbit),
            "burst",
            f"{bucket_kb(rate_mbit)}kb",
            "latency",
            f"{_QUEUE_MS}ms",
        )
        found.append((*place, *bucket))
    return tuple(found)
