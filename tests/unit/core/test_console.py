"""Prevents: a name that loses its brackets or becomes an emoji on the screen, and a traceback for a character that can't be encoded.

Prevents: a traceback for an unreadable, full or oddly named file, and a bug that looks like a user's mistake.

Prevents: advice that its reader can't type: a flag for a user of `make`, or a variable that make does not have.
"""

import errno
import io
import subprocess
import sys

import examples
import pytest
from commands import run_to_end
from records import record
from rich.table import Table

from runner.commands.documents import make_variables
from runner.core import console, errors
from runner.core.console import notify
from runner.core.request import Request
from runner.run.bench import _smoke_test


def test_a_name_is_printed_unmodified():
    name = "[x] [bold]a[/bold] :smile: a:-1 root:x:0"
    table = Table.grid()
    table.add_row(name)
    file = io.StringIO()
    shown = console.open_console(file=file, width=80)
    shown.print(name)
    shown.print(table)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [name, name]


def test_an_error_sentence_is_printed_unmodified():
    assert "HOSTS=a:-1: slots of a are" in run_to_end(["bench", "--hosts=a:-1", "--dry-run"]).stderr
    assert "/[x]:smile: does not exist" in run_to_end(["report", "/[x]:smile:"]).stderr


def test_characters_that_the_output_can_not_encode_are_replaced():
    done = run_to_end(["query", "select 'a ✓ b' as x"], env={"PYTHONIOENCODING": "latin-1"})
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["images list", "plan --workers=1 --device=cpu --engine=venv", "regrade nope"])
def test_a_closed_output_is_like_one_that_nobody_reads(command):
    """`dlscale ls >&-` ended with a traceback, and a bench with one after its trainings."""
    words = f"exec {sys.executable} -m runner.commands {command} >&-"
    closed = subprocess.run(["bash", "-c", words], cwd=examples.ROOT, capture_output=True, text=True)
    unread = run_to_end(command.split())
    assert (closed.returncode, closed.stderr) == (unread.code, unread.stderr)


def test_a_terminal_without_a_size_has_the_usual_width(monkeypatch):
    """With COLUMNS=0 nothing was printed, and a bench ended with a traceback after its trainings."""
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist's workers have it
    assert run_to_end(["images", "list"], env={"COLUMNS": "0"}).stdout == run_to_end(["images", "list"]).stdout != ""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/a/[b]"), "/a/[b] can't be read or written (Permission "),
        (OSError(errno.EROFS, "Read-only file system", "/mnt/x"), "/mnt/x can't be read or written (Read-only"),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output or a file can't be read or written (No "),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", b"/etc/passwd/x"), "can't be read or written (Not a dir"),
        (UnicodeEncodeError("utf-8", "/data/caf\udce9/x", 9, 10, "surrogates not allowed"), "/data/caf\\udce9/x"),
        # All others are bugs; the first is from a signal.
        (PermissionError(errno.EPERM, "Operation not permitted"), None),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), None),
        (OSError("a library's own"), None),
        (UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)"), None),
    ],
)
def test_a_system_error_about_a_path_is_one_sentence(error, sentence):
    found = errors.file_error_sentence(error)
    assert found is None if sentence is None else sentence in found


@pytest.mark.parametrize(
    ("sentence", "under_make"),
    [
        ("ask for WORKERS=2 or add --oversubscribe", "ask for WORKERS=2 or add OVERSUBSCRIBE=1"),
        ("--image corp/net:7 without a command", "IMAGE=corp/net:7 without a command"),
        ("give --batch N, the samples", "give BATCH=N, the samples"),
        ("--timeout or --link-rate describes", "TIMEOUT or LINK_RATE describes"),
        ("add --model=resnet50 --image-size=224", "add MODEL=resnet50 IMAGE_SIZE=224"),
        ("`dlscale doctor` says more", "`make doctor` says more"),
        ("`dlscale doctor --hosts=a:4` says why", "`make doctor HOSTS=a:4` says why"),
        ("`dlscale doctor --hosts` says why", "`make doctor HOSTS=...` says why"),
        ("`dlscale studies --cells` lists them", "`.venv/bin/dlscale studies --cells` lists them"),
        (
            "`dlscale bench --image I -- COMMAND`; --dialect",
            "`.venv/bin/dlscale bench --image I -- COMMAND`; --dialect",
        ),
        ("docker's --gpus-by is none of the suite's", "docker's --gpus-by is none of the suite's"),
    ],
)
def test_under_make_advice_names_variables(monkeypatch, sentence, under_make):
    assert console.in_user_terms(sentence) == sentence
    monkeypatch.setenv(console.UNDER_MAKE, "1")
    assert console.in_user_terms(sentence) == under_make


def test_notices_are_translated_for_make_too(monkeypatch, capsys):
    monkeypatch.setenv(console.UNDER_MAKE, "1")
    notify(["add --oversubscribe"])
    assert capsys.readouterr().err == "add OVERSUBSCRIBE=1\n"


def test_every_variable_in_advice_exists_in_make():
    text = (examples.ROOT / "Makefile").read_text("utf-8")
    assert f"DLSCALE := {console.UNDER_MAKE}=1 " in text
    known = {name for names in make_variables(text).values() for name in names}
    assert {name.upper() for name in console._VARIABLES} <= known
    assert {name for name in console._TARGETS if f"\n{name}: " not in text} == set()


@pytest.mark.parametrize(
    ("asked", "device", "status", "said"),
    [
        ({}, "cpu", "degraded", 1),
        ({"model": "resnet18"}, "cpu", "valid", 0),
        ({"image_size": 64}, "cpu", "valid", 0),
        ({}, "gpu", "valid", 0),
        ({}, "cpu", "invalid", 0),
    ],
)
def test_the_cpu_default_is_called_a_smoke_test(asked, device, status, said):
    """A bench whose only run was stopped by SIGTERM ended with "training works here"."""
    runs = [record(trial=examples.trial(device=device)), record(trial=examples.trial(device=device), status=status)]
    found = list(_smoke_test(Request(**asked), runs))
    assert len(found) == said
    assert all("resnet18 at 32×32 is a smoke test" in one for one in found)
