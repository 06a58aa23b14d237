"""A node's clock, as its engine shows it.

Prevents: a time zone or nine digits that are misread as an offset; a slow answer that is taken for a wrong clock, or hides one; a node
ten seconds off whose windows are put in order with the others'.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.cluster.hosts.survey import Clock, clock_refusal, parse_time, read_clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10),
        ("1970-01-01T00:00:10.5Z", 10.5),
        ("1970-01-01T00:00:10.123456789Z", 10.123456789),
        ("1970-01-01T02:00:10.25+02:00", 10.25),
        ("1969-12-31T19:00:10-05:00", 10),
    ],
)
def test_times_as_go_writes_them(text, seconds):
    assert parse_time(text) == pytest.approx(seconds, abs=1e-6)


def test_what_is_no_time_is_no_time():
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time("yesterday")


def clocks(*pairs):
    """Our clock before and after each question, and the node's answer in between."""
    ours = iter([moment for before, _, after in pairs for moment in (before, after)])
    theirs = iter([theirs for _, theirs, _ in pairs])
    return (
        lambda: {"SystemTime": f"1970-01-01T00:00:{next(theirs):09.6f}Z"},
        lambda: next(ours),
    )


def test_the_quickest_of_three_answers_counts():
    ask, now = clocks((10.0, 11.9, 12.0), (20.0, 30.1, 20.2), (30.0, 30.9, 31.0))
    _, clock = read_clock(ask, now=now)
    # The second answer took 0.2 s; half way, at 20.1, the node's clock showed 30.1.
    assert clock.offset_s == pytest.approx(10.0)
    assert clock.error_s == pytest.approx(0.1)


@given(delay=st.floats(0, 5), share=st.floats(0, 1))
def test_equal_clocks_are_never_called_apart(delay, share):
    """Wherever between question and answer the node looks at its clock."""
    ask, now = clocks(*[(10.0, 10.0 + delay * share, 10.0 + delay)] * 3)
    _, clock = read_clock(ask, now=now)
    assert clock.apart_s == pytest.approx(0, abs=1e-5)


def test_a_node_ten_seconds_behind_is_refused_by_name():
    said = clock_refusal("n2", Clock(offset_s=-10.0, error_s=0.02))
    assert said.startswith("n2: its clock is 10.000 s behind this machine's (± 0.020 s)")
    assert "chrony or ntpd" in said


@pytest.mark.parametrize("clock", [Clock(1.9, 0.0), Clock(-2.0, 0.0), Clock(5.0, 3.5)])
def test_what_may_be_within_two_seconds_is_taken(clock):
    assert clock_refusal("n2", clock) is None
