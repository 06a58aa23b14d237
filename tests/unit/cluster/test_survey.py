"""The concurrent survey of all hosts; tests/hosts checks the answers of real nodes.

Prevents: an unusable host that is not named; connections left open when one of them fails; a list that fails on its first host without
mentioning the others; a time zone or nine decimals misread as a clock offset; a slow answer taken for a wrong clock, or that hides
one; a node ten seconds off whose windows are ordered with the others'.
"""

from types import SimpleNamespace

import pytest
from examples import node
from hypothesis import given
from hypothesis import strategies as st

from runner.cluster.hosts import survey as survey_module
from runner.cluster.hosts.model import Endpoint, Host, Hosts, Interface
from runner.cluster.hosts.survey import Clock, ask_all, clock_refusal, parse_time, read_clock, refusals, survey
from runner.core.errors import RequestError


def test_one_refusal_is_an_answer_among_others():
    def ask(number):
        if number == 2:
            raise RequestError("two: no")
        return number * 10

    first, second, third = ask_all(ask, (1, 2, 3))
    assert (first, str(second), third) == (10, "two: no", 30)


def test_other_exceptions_are_not_caught():
    with pytest.raises(ZeroDivisionError):
        ask_all(lambda number: 1 // number, (1, 0))


def listed(*names):
    return Hosts(hosts=tuple(Host(name=name, endpoint=Endpoint(url=f"ssh://{name}")) for name in names), source="list")


class Connection:
    def __init__(self, host):
        self.host, self.closed = host, False

    def close(self):
        self.closed = True


@pytest.fixture
def world(monkeypatch):
    """Hosts that answer, except those that a test takes away."""
    made = []
    answers = SimpleNamespace(unreached=set(), silent=set(), offsets={}, engines={})

    def connect(host):
        if host.name in answers.unreached:
            raise RequestError(f"{host.name}: no sshd listens there (refused); start it")
        made.append(Connection(host))
        return made[-1]

    def examine(connection, reference):
        name = connection.host.name
        if name in answers.silent:
            raise RequestError(f"{name}: its engine does not answer; look at its log")
        return SimpleNamespace(
            host=connection.host,
            connection=connection,
            engine_id=answers.engines.get(name, f"engine of {name}"),
            node=node(name=name),
            local=(),
            clock=Clock(answers.offsets.get(name, 0.0), 0.01),
        )

    monkeypatch.setattr(survey_module, "Connection", Connection)
    monkeypatch.setattr(survey_module, "connect", connect)
    monkeypatch.setattr(survey_module, "examine", examine)
    monkeypatch.setattr(survey_module, "supply_base", lambda connections, say: "dlscale/base:x")
    answers.made = made
    return answers


def test_answers_are_in_the_lists_order(world):
    found = survey(listed("n2", "n1", "n3"), print)
    assert [seen.host.name for seen in found] == ["n2", "n1", "n3"]
    assert not any(connection.closed for connection in world.made)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"engines": {"n1": "ABCD", "n3": "ABCD"}}, "n1 and n3 are one machine: the same engine answers; name it once"),
        ({"unreached": {"n2"}}, "n2: no sshd listens there (refused); start it"),
        (
            {"unreached": {"n2", "n3"}},
            "n2: no sshd listens there (refused); start it (n3 can't be used either: `dlscale",
        ),
        ({"silent": {"n3"}}, "n3: its engine does not answer; look at its log"),
        ({"offsets": {"n1": 10.0}}, "n1: its clock is 10.000 s ahead of this machine's"),
    ],
)
def test_an_unusable_host_is_named_and_all_connections_are_closed(world, facts, said):
    vars(world).update(facts)
    with pytest.raises(RequestError) as caught:
        survey(listed("n1", "n2", "n3"), print)
    assert str(caught.value).startswith(said)
    assert all(connection.closed for connection in world.made)


def test_refusals_include_claims_and_clock():
    host = Host(name="n1", endpoint=Endpoint(url="ssh://n1"), slots=8, interfaces={"ethernet": Interface(name="eth9")})
    seen = SimpleNamespace(host=host, node=node(name="n1"), local=(), clock=Clock(10.0, 0.0))
    said = refusals(seen)
    assert len(said) == 3
    assert all(sentence.startswith("n1: ") for sentence in said)


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
def test_times_are_parsed_as_go_writes_them(text, seconds):
    assert parse_time(text) == pytest.approx(seconds, abs=1e-6)


def test_an_invalid_time_is_refused():
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time("yesterday")


def clocks(*pairs):
    """Our clock before and after each request, and the node's answer in between."""
    ours = iter([moment for before, _, after in pairs for moment in (before, after)])
    theirs = iter([theirs for _, theirs, _ in pairs])
    return (lambda: {"SystemTime": f"1970-01-01T00:00:{next(theirs):09.6f}Z"}, lambda: next(ours))


def test_the_quickest_of_three_answers_counts():
    ask, now = clocks((10.0, 11.9, 12.0), (20.0, 30.1, 20.2), (30.0, 30.9, 31.0))
    _, clock = read_clock(ask, now=now)
    # The second answer took 0.2 s; half way, at 20.1, the node's clock showed 30.1.
    assert clock.offset_s == pytest.approx(10.0)
    assert clock.error_s == pytest.approx(0.1)


@given(delay=st.floats(0, 5), share=st.floats(0, 1))
def test_equal_clocks_are_never_apart(delay, share):
    """Whenever the node reads its clock between request and answer."""
    ask, now = clocks(*[(10.0, 10.0 + delay * share, 10.0 + delay)] * 3)
    _, clock = read_clock(ask, now=now)
    assert clock.apart_s == pytest.approx(0, abs=1e-5)


def test_a_node_ten_seconds_behind_is_refused_by_name():
    said = clock_refusal("n2", Clock(offset_s=-10.0, error_s=0.02))
    assert said.startswith("n2: its clock is 10.000 s behind this machine's (± 0.020 s)")
    assert "chrony or ntpd" in said


@pytest.mark.parametrize("clock", [Clock(1.9, 0.0), Clock(-2.0, 0.0), Clock(5.0, 3.5)])
def test_a_clock_that_may_be_within_two_seconds_is_accepted(clock):
    assert clock_refusal("n2", clock) is None
