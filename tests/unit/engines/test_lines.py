"""Prevents: a healthy program killed as silent, output that takes quadratic time or all memory, lines lost at the edges of reads."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engines.base import LONGEST, TRUNCATED, Splitter


def texts(*pieces):
    splitter = Splitter("stdout")
    found = itertools.chain(*(list(splitter.feed(piece)) for piece in pieces), splitter.close())
    return [line.text for line in found if line.whole]


def test_lines_end_with_a_newline_a_carriage_return_or_both():
    assert texts(b"one\ntwo\r\nthree\rfour") == ["one", "two", "three", "four"]
    assert texts(b"one\r", b"\ntwo", b" and more\n\n") == ["one", "two and more", ""]


@given(st.lists(st.sampled_from(["a", "bc", "\n", "\r\n", "é", "x" * 50])), st.data())
def test_lines_do_not_depend_on_where_reads_end(words, data):
    whole = "".join(words).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    pieces = [whole[start:end] for start, end in itertools.pairwise([0, *cuts, len(whole)])]
    assert texts(*filter(None, pieces)) == texts(whole)


def test_any_byte_is_a_sign_of_life():
    """A program with a progress bar that never ends a line was killed as silent."""
    (sign,) = Splitter("stderr").feed(b".")
    assert (sign.whole, sign.text, sign.stream) == (False, "", "stderr")


@pytest.mark.parametrize("megabytes", [2, 64])
def test_an_endless_line_is_cut_and_takes_bounded_memory(megabytes):
    """40 MB took 32 s, and 300 MB were not done after 303 s: each read was joined to all previous ones."""
    splitter, chunk = Splitter("stdout"), b"x" * 2**16
    tracemalloc.start()
    for _ in range(megabytes * 16):
        list(splitter.feed(chunk))
    (line,) = (found for found in splitter.feed(b"\nnext") if found.whole)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert line.text == "x" * LONGEST + TRUNCATED
    assert peak < 8 * LONGEST
    assert [found.text for found in splitter.close()] == ["next"]
