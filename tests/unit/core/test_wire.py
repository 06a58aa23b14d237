"""Link rates and delays in tc's units.

Prevents: a rate that is off by eight (bits read as bytes) or by 1.024^n (binary units); a unit that tc would read otherwise than its
user; a rate that comes out of the suite as another than went in.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.wire import Link, parse_delay, parse_rate, show_delay, show_rate


@pytest.mark.parametrize(
    ("text", "mbit"),
    [("1gbit", 1000), ("100mbit", 100), ("2.5Gbit", 2500), ("512kbit", 0.512), ("1tbit", 1_000_000), (" 8bit ", 8e-6)],
)
def test_rates_are_decimal_bits_as_tc_counts_them(text, mbit):
    assert parse_rate(text) == pytest.approx(mbit)


@pytest.mark.parametrize(
    "text", ["1gbps", "1000", "fast", "", "0gbit", "-1gbit", "1 gbit", "1gbit2", "1gibit", "inf gbit"]
)
def test_a_rate_that_could_be_read_in_two_ways_is_no_rate(text):
    with pytest.raises(ValueError, match="1gbit or 100mbit"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "ms"), [("0.2ms", 0.2), ("50us", 0.05), ("1s", 1000), ("0ms", 0)])
def test_delays(text, ms):
    assert parse_delay(text) == pytest.approx(ms)


@pytest.mark.parametrize("text", ["10", "1m", "ms", "-1ms"])
def test_a_delay_without_its_unit_is_no_delay(text):
    with pytest.raises(ValueError, match="50us"):
        parse_delay(text)


@given(st.floats(min_value=1e-5, max_value=1e6))
def test_what_is_shown_is_read_back(value):
    assert parse_rate(show_rate(value)) == pytest.approx(value)
    assert parse_delay(show_delay(value)) == pytest.approx(value)


def test_labels():
    assert Link(rate_mbit=1000, delay_ms=0.2, emulated=True).label == "emulated 1gbit 200us"
    assert Link(rate_mbit=100_000, emulated=False).label == "100gbit"
    assert not Link(emulated=False).label
    with pytest.raises(ValueError):
        Link(rate_mbit=0, emulated=True)
