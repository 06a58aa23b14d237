"""Prevents: a link that is faster than its rate because a small model's gradients fit into the bucket, one that never reaches its
rate because the bucket is smaller than a packet, a queue whose size overflows tc's field, and a packet that is delayed twice.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.wire import Link
from runner.engines.shaper import burst_bytes, qdiscs, queue_bytes


def link(**what):
    return Link(emulated=True, **what)


@pytest.mark.parametrize(
    ("held_to", "steps"),
    [
        (None, []),
        (link(), []),
        # 1 ms at 12.5 MB/s is less than a packet; 200 ms are 2.5 MB.
        (link(rate_mbit=100), ["root handle 1: tbf rate 100mbit burst 73728b limit 2573728b"]),
        # 1 ms at 125 MB/s; 200 ms are 25 MB.
        (link(rate_mbit=1000), ["root handle 1: tbf rate 1gbit burst 125000b limit 25125000b"]),
        # 1 ms at 12.5 GB/s; 200 ms would be 2.5 GB.
        (link(rate_mbit=100_000), ["root handle 1: tbf rate 100gbit burst 12500000b limit 1073741824b"]),
        (link(delay_ms=0.2), ["root handle 1: netem delay 200us limit 10000"]),
        # On a kernel with netem, with this on one of two ends: 95.6 Mbit/s of payload and a round trip of 5.2 ms.
        (
            link(rate_mbit=100, delay_ms=5),
            [
                "root handle 1: netem delay 5ms limit 10000",
                "parent 1:1 handle 10: tbf rate 100mbit burst 73728b limit 2573728b",
            ],
        ),
    ],
)
def test_a_rate_is_a_token_bucket_below_the_delay(held_to, steps):
    assert [" ".join(found) for found in qdiscs(held_to)] == steps


def test_the_far_end_of_a_link_limits_the_rate_but_adds_no_delay():
    assert qdiscs(link(rate_mbit=100, delay_ms=5), delayed=False) == qdiscs(link(rate_mbit=100))
    assert qdiscs(link(delay_ms=5), delayed=False) == ()


@given(st.floats(min_value=0.001, max_value=1e6))
def test_every_rate_gives_sizes_that_fit_into_tcs_fields(rate_mbit):
    """A packet of 64 KiB and its 46 headers of 66 bytes fits; the bucket is at most 1 ms of a fast link; both fit into 32 bits."""
    burst, queue = burst_bytes(rate_mbit), queue_bytes(rate_mbit)
    assert 65536 + 46 * 66 <= burst <= max(73728, rate_mbit * 1e6 / 8 / 1000 + 1)
    assert burst < queue < 2**32
