"""Prevents: the suite's own time counted as the program's, or the program's as the suite's."""

import examples
from records import events

from runner.events import Phase, RunStop
from runner.overhead import program_s


def test_a_program_lives_from_its_process_to_its_last_event():
    found = [event for event in events(examples.trial()) if not isinstance(event, Phase | RunStop)]
    fields = {"rank": 0, "received": 0.0, "container": "x"}
    began = Phase(event="phase", t=12.0, name="import", seconds=2.0, **fields)
    built = Phase(event="phase", t=15.0, name="model", seconds=9.0, **fields)
    stops = [
        RunStop(event="run_stop", t=t, iterations=1, samples=1, parameter_norm=1.0, **fields) for t in (30.0, 31.5)
    ]
    assert program_s([*found, began, built, *stops]) == 21.5
