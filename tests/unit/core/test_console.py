"""Prevents: a name that loses its brackets or becomes an emoji on the screen, and output that ends in a traceback for lack of a letter."""

import io

from commands import to_its_end
from rich.table import Table

from runner.core import console


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
