"""What a screen reader says of a figure.

Prevents: a summary that leaves out a value that the figure shows, an interval, or that a curve is somebody else's; one that reads out three
hundred points of a curve over time.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from runner.report.page.model import Figure, Series, told


def figure(*series, **changes):
    return Figure.model_validate(
        {"name": "f", "title": "T", "x": "devices", "y": "speedup", "series": series} | changes
    )


def test_few_points_are_told_one_by_one_with_their_intervals():
    series = Series(name="measured", x=(1.0, 4.0), y=(1.0, 3.9), low=(None, 3.8), high=(None, 4.0))
    assert told(figure(series)) == "Speedup by devices. measured: 1.000 at 1; 3.90 ± 0.10 at 4."


def test_a_name_stands_before_its_value():
    assert told(figure(Series(name="share", x=("gemm",), y=(12.5,)))).endswith("share: gemm 12.50.")


def test_what_others_published_is_said_to_be_and_the_ideal_is_not_told():
    ours = Series(name="mxnet", x=(2.0,), y=(1.9,))
    theirs = Series(name="mxnet", kind="published", x=(2.0,), y=(1.868,))
    ideal = Series(name="ideal", kind="ideal", x=(1.0, 2.0), y=(1.0, 2.0))
    assert told(figure(theirs, ours, ideal)) == "Speedup by devices. mxnet (published): 1.868 at 2. mxnet: 1.900 at 2."
    alone = theirs.model_copy(update={"name": "published"})
    assert "published: 1.868 at 2" in told(figure(alone))


def test_many_points_are_told_by_their_ends_and_extremes():
    values = (5.0, 7.0, 1.0, 3.0, None, 3.0, 3.0, 3.0, 3.0, 4.0)
    said = told(figure(Series(name="host", x=tuple(map(float, range(10))), y=values)))
    assert said.endswith("host: 9 values, first 5.000 at 0, last 4.000 at 9, smallest 1.000 at 2, largest 7.000 at 1.")


def test_a_curve_of_holes_has_no_value():
    assert told(figure(Series(name="host", x=(1.0,), y=(None,)))).endswith("host: no value.")


@pytest.mark.parametrize("column", [{"low": (1.0,)}, {"runs": (("a",),)}, {"degraded": (True,)}, {"y": ()}])
def test_columns_of_different_length_are_refused(column):
    with pytest.raises(ValidationError, match="for 2 points"):
        Series.model_validate({"name": "s", "x": (1.0, 2.0), "y": (1.0, 2.0)} | column)
