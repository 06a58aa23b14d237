"""Prevents: rows that are lost, doubled or put under another column where a table is cut into lines; a line longer than what a pipe
takes whole, which ranks that share one would tear."""

import io
import json

import events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import parse

VALUES = (
    st.none()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]))
)

NAMES = ("name", "op", "bytes")


def written(columns):
    stream = io.StringIO()
    events.Events(rank=3, stream=stream).table("kernels", columns)
    return stream.getvalue().splitlines(keepends=True)


@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=200))
def test_what_is_read_back_is_what_was_written(rows):
    columns = {name: [row[index] for row in rows] for index, name in enumerate(NAMES)}
    found = [parse.parse_line(line, received=0.0, container="c") for line in written(columns)]
    assert all(line.rank == 3 and line.table == "kernels" for line in found)
    back = []
    for line in found:
        size = len(next(iter(line.columns.values()), []))
        back += zip(*(line.columns.get(name, [None] * size) for name in NAMES), strict=True)
    expected = [row for row in rows if any(value is not None for value in row)]
    assert [row for row in back if any(value is not None for value in row)] == expected


@pytest.mark.parametrize("length", [60, 700, 5000])
def test_no_line_is_longer_than_what_a_pipe_takes_whole(length):
    names = [f"{number:05}" + "é<" * length for number in range(40)]
    lines = written({"kind": ["kernel"] * 40, "name": names, "start": [1e4 / 7] * 40, "op": [None] * 40})
    assert max(len(line.encode()) for line in lines) <= 4096
    assert len(lines) > 1
    read = [name for line in lines for name in json.loads(line[len(parse.ROWS_PREFIX) :])["columns"]["name"]]
    assert [name[:5] for name in read] == [name[:5] for name in names]


def test_a_column_that_is_null_throughout_is_left_out_and_an_empty_table_is_no_line():
    (line,) = written({"name": ["a", "b"], "op": [None, None], "bytes": [None, 4]})
    assert json.loads(line[len(parse.ROWS_PREFIX) :])["columns"] == {"name": ["a", "b"], "bytes": [None, 4]}
    assert written({"name": [], "op": []}) == []
