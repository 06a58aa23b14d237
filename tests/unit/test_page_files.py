"""The page's figures as files.

Prevents: a CSV from which the figure can not be drawn again; a PNG that fails on a shape of figure, or is another each time.
"""

from __future__ import annotations

import csv
import io
import struct

import pytest

from runner.report import picture
from runner.report.page.model import Figure, Series, to_csv

MEASURED = Series(
    name="measured",
    x=(1.0, 2.0, 16.0),
    y=(1.0, 1.9, None),
    low=(None, 1.8, None),
    high=(None, 2.1, None),
    degraded=(False, True, False),
    runs=(("a",), ("b", "c"), ()),
)
IDEAL = Series(name="ideal", kind="ideal", x=(1.0, 16.0), y=(1.0, 16.0))
THEIRS = Series(name="measured", kind="published", x=(2.0,), y=(1.8,))
LINES = Figure(
    name="f", title="T", x="devices", y="speedup", series=(MEASURED, THEIRS, IDEAL), log=True, interval="95 %"
)
NAMED = MEASURED.model_copy(update={"x": ("one", "two, emulated 1gbit", "three")})
NEEDED = Series(name="needed", kind="ideal", x=("one",), y=(1.5,))
BARS = LINES.model_copy(update={"shape": "bars", "series": (NAMED,), "log": False})
LYING = LINES.model_copy(update={"shape": "lying", "series": (NAMED, NEEDED), "log": False})
OVER_TIME = LINES.model_copy(
    update={
        "log": False,
        "shade": ((0.0, 50.0),),
        "series": (Series(name="GPU 0", x=tuple(map(float, range(100))), y=(1.0,) * 50 + (None,) + (2.0,) * 49),),
    }
)


def test_a_csv_has_every_point_with_its_runs():
    head, *rows = csv.reader(io.StringIO(to_csv(LINES)))
    assert head == ["series", "kind", "x: devices", "y: speedup", "ci95_low", "ci95_high", "degraded", "runs"]
    assert rows[:4] == [
        ["measured", "measured", "1.0", "1.0", "", "", "", "a"],
        ["measured", "measured", "2.0", "1.9", "1.8", "2.1", "yes", "b c"],
        ["measured", "measured", "16.0", "", "", "", "", ""],
        ["measured", "published", "2.0", "1.8", "", "", "", ""],
    ]
    assert len(rows) == 6


@pytest.mark.parametrize("figure", [LINES, BARS, LYING, OVER_TIME], ids=["lines", "bars", "lying", "over time"])
def test_every_shape_is_drawn_the_same_each_time(figure):
    png = picture.png(figure)
    assert struct.unpack(">II", png[16:24])[0] == (1680 if len(figure.series) > 1 else 1280)
    assert picture.encoded(picture.draw(figure)) == png


def test_nothing_known_is_no_picture():
    empty = Series(name="s", x=(1.0,), y=(None,))
    assert picture.png(LINES.model_copy(update={"series": (empty,)})) is None


def test_two_lines_across_a_bar_are_told_apart_and_cross_no_label():
    """Two entries of a legend had one mark between them, and the second line went through the bar's value."""
    sent = Series(name="sent", x=("one",), y=(1.0,), labels=("1.000",))
    tree, ring = (
        Series(name=name, kind="ideal", x=("one",), y=(value,)) for name, value in (("tree", 0.9), ("ring", 1.5))
    )
    (axes,) = picture.draw(LYING.model_copy(update={"series": (sent, tree, ring)})).axes
    solid, dashed = axes.collections
    assert solid.get_linestyle() != dashed.get_linestyle()
    assert solid.get_color().tolist() != dashed.get_color().tolist()
    (label,) = axes.texts
    assert label.xy[0] == 1.5
