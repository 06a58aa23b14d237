"""Prevents: ordinary output taken for events, broken events skipped silently, a crash on NaN."""

import json

import pytest

from runner.core.events import Loss, Window
from runner.core.events.parse import EventError, parse_events, parse_line

WINDOW = {
    "event": "window",
    "rank": 1,
    "t": 5.0,
    "index": 0,
    "start": 4.0,
    "iterations": 2,
    "samples": 64,
    "seconds": 1.0,
    "step_seconds": None,
}


def line(fields):
    return "::dlscale:: " + json.dumps(fields)


def parse(text):
    return parse_line(text, received=9.0, container="w0")


def test_a_window_is_read_with_its_time_of_arrival_and_container():
    found = parse(line(WINDOW))
    assert isinstance(found, Window)
    assert (found.rank, found.samples, found.seconds, found.received, found.container) == (1, 64, 1.0, 9.0, "w0")


@pytest.mark.parametrize("mark", ["[0]<stdout>:", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[default1]:", "[rank1]: "])
def test_an_event_behind_a_launchers_prefix_is_read(mark):
    assert parse(mark + line(WINDOW)) == parse(line(WINDOW))


@pytest.mark.parametrize("text", ["epoch 1 done", "", " ::dlscale:: {}", "Speed: 35 samples/sec"])
def test_ordinary_output_is_no_event(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "::dlscale:: not json",
        "::dlscale:: [1, 2]",
        "::dlscale:: 7",
        line({**WINDOW, "event": "windw"}),
        line({key: WINDOW[key] for key in WINDOW if key != "samples"}),
        line({**WINDOW, "samples": "many"}),
        line({**WINDOW, "extra": 1}),
    ],
)
def test_a_broken_event_is_refused_by_name(text):
    with pytest.raises(EventError, match="^w0 wrote an event"):
        parse(text)


def test_a_loss_that_is_not_a_number_is_kept_as_missing():
    found = parse('::dlscale:: {"event":"loss","rank":0,"t":1.0,"first_iteration":3,"values":[2.3,NaN,Infinity]}')
    assert isinstance(found, Loss)
    assert found.values == (2.3, None, None)


def test_written_events_are_read_back():
    event = parse(line(WINDOW))
    assert parse_events([event.model_dump_json(), ""]) == (event,)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"table": "telemetry", "rank": 0, "columns": {"t": [1.0, 2.0], "device": ["gpu0"]}}, "differ in length"),
        ({"table": "telemetry", "rank": 0, "columns": {"t": [1.0], "watts": [2.0]}}, "no column watts"),
        ({"table": "weather", "rank": 0, "columns": {}}, "table"),
        ({"table": "kernels", "rank": 0}, "columns"),
    ],
)
def test_malformed_rows_break_the_contract(fields, complaint):
    with pytest.raises(EventError, match=complaint):
        parse("::dlscale-rows:: " + json.dumps(fields))
