"""Where text for people goes, and advice in the words of whoever asked: where the command line has flags, `make` has variables.

Names of files, hosts and images are printed as they are, never read as markup or as the name of an emoji.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Final, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from runner.core.errors import printable
from runner.core.request import OF_COMMAND, Request


class _Console(Console):
    """A console on which nothing that was read, heard or typed is a command to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Give what is to be written, each text as text; Rich's own control codes are no text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def complain(sentences: Iterable[str]) -> None:
    """Say on standard error, a line each, what was passed over."""
    console = open_console(stderr=True, soft_wrap=True)
    for sentence in sentences:
        console.print(spoken(sentence))


def open_console(
    *, stderr: bool = False, soft_wrap: bool = False, width: int | None = None, file: IO[str] | None = None
) -> Console:
    """A console on standard output, standard error or a file; `soft_wrap` leaves long lines whole."""
    return _Console(
        stderr=stderr, soft_wrap=soft_wrap, width=width, file=file, markup=False, emoji=False, highlight=False
    )


def open_screen() -> Console:
    """A console for tables: as wide as the terminal, or as `COLUMNS` says; 200 columns for a file or another program, where nothing has to fit a screen."""
    console = open_console()
    return console if console.is_terminal or os.environ.get("COLUMNS") else open_console(width=200)


def no_console() -> Console:
    """A console that says nothing."""
    return Console(quiet=True)


# Nobody reads the pipe any more; the terminal has hung up.
_GONE: Final = frozenset({errno.EPIPE, errno.EIO})


def outlast() -> None:
    """Let this process, and those that inherit its output, go on writing to nowhere once nobody reads it, and `?` for what it can't encode."""
    for name in ("stdout", "stderr"):
        if stream := getattr(sys, name):  # None where whoever started this process has closed it
            setattr(sys, name, _Outlasting(stream))


class _Outlasting(io.TextIOWrapper):
    """An open stream whose file becomes /dev/null when its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="replace" if stream.errors == "strict" else stream.errors,
            line_buffering=bool(stream.line_buffering),
        )

    def write(self, text: str, /) -> int:
        with self._to_nowhere():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._to_nowhere():
            super().flush()

    @contextmanager
    def _to_nowhere(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


UNDER_MAKE: Final = "DLSCALE_MAKE"
"""Set in the environment by the Makefile."""
_UNITS: Final = re.compile("_(mib|ms|s)$")
_PRINTING: Final = {"beside_host", "csv", "json", "markdown", "verbose"}  # switches of single commands
_SWITCHES: Final = {name for name, field in Request.model_fields.items() if field.annotation is bool} | _PRINTING
_OF_NONE: Final = {"command", "links", "mounts"} | OF_COMMAND.keys()
_OTHERS: Final = {"mount", "link_rate", "link_delay", "format", "program", "source"} | _PRINTING
_VARIABLES: Final = {_UNITS.sub("", name) for name in Request.model_fields} - _OF_NONE | _OTHERS
_TARGETS: Final = ("doctor", "clean", "studies")
"""Commands that advice names alone, and that are targets too."""
# A command line in backticks, or a flag with its value: a word in capitals, or one that is no word of the sentence.
_SPOKEN: Final = re.compile(r"`dlscale ([^`]+)`|--([a-z][a-z-]*)(?:[= ]([A-Z]+\b|[^\s;,]*[:/.][^\s;,]+))?")


def spoken(sentence: str) -> str:
    """A sentence for the user; under `make`, `--oversubscribe` becomes `OVERSUBSCRIBE=1`."""
    return _SPOKEN.sub(_in_words_of_make, sentence) if os.environ.get(UNDER_MAKE) else sentence


def _in_words_of_make(found: re.Match[str]) -> str:
    command, flag, value = found.groups()
    if command:
        return f"`make {command}`" if command in _TARGETS else f"`.venv/bin/dlscale {command}`"
    name = flag.replace("-", "_")
    if name not in _VARIABLES:
        return found[0]
    value = "1" if name in _SWITCHES else value
    return name.upper() + (f"={value}" if value else "")
