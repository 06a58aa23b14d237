"""Link rates and delays in tc's units.

Prevents: a rate that is off by a factor of 8 (bits read as bytes) or of 1.024^n (binary units); a unit that tc and the user read
differently; a rate that changes when it is formatted and parsed again.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.wire import Link, parse_delay, parse_rate, show_delay, show_rate


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        # tc's decimal units: megabits a second, milliseconds.
        *((parse_rate, text, mbit) for text, mbit in (("1gbit", 1000), ("100mbit", 100), ("2.5Gbit", 2500))),
        *((parse_rate, text, mbit) for text, mbit in (("512kbit", 0.512), ("1tbit", 1_000_000), (" 8bit ", 8e-6))),
        *((parse_delay, text, ms) for text, ms in (("0.2ms", 0.2), ("50us", 0.05), ("1s", 1000), ("0ms", 0))),
    ],
)
def test_rates_and_delays(parse, text, value):
    assert parse(text) == pytest.approx(value)


NO_RATES = ("1gbps", "1000", "fast", "", "0gbit", "-1gbit", "1 gbit", "1gbit2", "1gibit", "inf gbit")


@pytest.mark.parametrize(
    ("parse", "text", "example"),
    [
        *((parse_rate, text, "1gbit or 100mbit") for text in NO_RATES),
        *((parse_delay, text, "50us") for text in ("10", "1m", "ms", "-1ms")),
    ],
)
def test_ambiguous_units_are_refused_with_an_example(parse, text, example):
    with pytest.raises(ValueError, match=example):
        parse(text)


@given(st.floats(min_value=1e-5, max_value=1e6))
def test_formatted_values_are_parsed_back(value):
    assert parse_rate(show_rate(value)) == pytest.approx(value)
    assert parse_delay(show_delay(value)) == pytest.approx(value)


def test_labels():
    assert Link(rate_mbit=1000, delay_ms=0.2, emulated=True).label == "emulated 1gbit 200us"
    assert Link(rate_mbit=100_000, emulated=False).label == "100gbit"
    assert not Link(emulated=False).label
    with pytest.raises(ValueError):
        Link(rate_mbit=0, emulated=True)
