"""Prevents: warm-up or the log's tail counted as measured, a run whose beginning or end is told twice."""

import pytest
from dialect_logs import facts, of, text

from runner.run.dialects import DIALECTS
from runner.run.dialects.base import DialectError
from runner.run.dialects.figures import FiguresReader


def read(*, warmup, iterations):
    reader = FiguresReader(DIALECTS["caffe"](facts(batch_per_device=64, warmup=warmup)), iterations=iterations)
    lines = text("caffe_1.0.log").splitlines()
    events = [event for line in lines for event in reader.feed(line, received=1.0)]
    return [*events, *reader.close(received=2.0)]


def test_windows_of_the_measured_iterations_and_all_losses_are_kept_and_nothing_else():
    events = read(warmup=2, iterations=8)
    assert {event.event for event in events} == {"window", "loss"}
    assert [window.iterations for window in of("window", events)] == [2, 2, 2, 2]
    # The first is that from iteration 2 to iteration 4: 22.314567 - 22.226701.
    assert of("window", events)[0].seconds == pytest.approx(0.087866, abs=1e-6)
    assert [loss.first_iteration for loss in of("loss", events)] == [0, 2, 4, 6, 8, 10, 12, 14]


def test_a_log_in_another_dialect_fails_as_it_would_without():
    reader = FiguresReader(DIALECTS["caffe"](facts()), iterations=1)
    assert reader.feed("Epoch[0] Batch [20]", received=1.0) == ()
    assert not reader.found
    with pytest.raises(DialectError, match="no line is in dialect caffe"):
        reader.close(received=2.0)
