"""Prevents: a name that loses its brackets or becomes an emoji on the screen, and output that ends in a traceback for lack of a letter."""

import io
import os
import sys

import pytest
from commands import to_its_end
from rich.table import Table

from runner import console


def test_a_name_is_printed_as_it_is():
    name = "[x] [bold]a[/bold] :smile: a:-1 root:x:0"
    table = Table.grid()
    table.add_row(name)
    file = io.StringIO()
    shown = console.open_console(file=file, width=80)
    shown.print(name)
    shown.print(table)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [name, name]


def test_the_sentence_of_an_error_is_printed_as_it_is():
    assert "HOSTS=a:-1: slots of a are" in to_its_end(["bench", "--hosts=a:-1", "--dry-run"]).stderr
    assert "/[x]:smile:: holds no run record" in to_its_end(["report", "/[x]:smile:"]).stderr


def test_what_the_encoding_of_the_output_lacks_is_replaced():
    done = to_its_end(["query", "select 'a ✓ b' as x"], env={"PYTHONIOENCODING": "latin-1"})
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize(("before", "after"), [("strict", "replace"), ("surrogateescape", "surrogateescape")])
def test_only_an_output_that_would_fail_is_made_to_replace(monkeypatch, before, after):
    output = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors=before)
    monkeypatch.setattr(sys, "stdout", output)
    console.replace_unprintable()
    assert output.errors == after


def test_output_that_nobody_reads_is_thrown_away(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        output.write("x")
        console.discard_output()
        output.flush()
