"""Consoles for text that users read, and advice in their terms: flags on the command line, variables under `make`.

Names of files, hosts and images are printed unmodified, never interpreted as markup or as emoji codes.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from runner.core.errors import printable
from runner.core.request import COMMAND_OPTIONS, Request


class _Console(Console):
    """A console that strips terminal control sequences from all text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to write, with text stripped of control sequences; Rich's own control segments pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def notify(sentences: Iterable[str]) -> None:
    """Print notices on standard error, one a line."""
    console = open_console(stderr=True, soft_wrap=True)
    for sentence in sentences:
        console.print(in_user_terms(sentence))


def open_console(
    *, stderr: bool = False, soft_wrap: bool = False, width: int | None = None, file: IO[str] | None = None
) -> Console:
    """Open a console on standard output, standard error or a file; `soft_wrap` leaves long lines whole."""
    return _Console(
        stderr=stderr, soft_wrap=soft_wrap, width=width, file=file, markup=False, emoji=False, highlight=False
    )


def open_screen() -> Console:
    """Open a console for tables: as wide as the terminal or `COLUMNS`; 200 columns if output goes to a file or a pipe."""
    console = open_console()
    return console if console.is_terminal or os.environ.get("COLUMNS") else open_console(width=200)


def forget_no_width() -> None:
    """Drop COLUMNS=0, which a terminal without a size sets: Rich would print nothing."""
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]


def no_console() -> Console:
    """Return a console that prints nothing."""
    return Console(quiet=True)


# The pipe's reader is gone; the terminal has hung up.
_HANGUP_ERRNOS: Final = frozenset({errno.EPIPE, errno.EIO})


def discard_after_hangup() -> None:
    """Discard the output of this process and its children once its reader is gone; write `?` for characters that can't be encoded."""
    for name in ("stdout", "stderr"):
        # None if this process was started with the stream closed.
        stream = getattr(sys, name) or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
        setattr(sys, name, _DiscardingStream(stream))


class _DiscardingStream(io.TextIOWrapper):
    """An open stream whose file descriptor is redirected to /dev/null when its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # it closes the file when it is collected
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="replace" if stream.errors == "strict" else stream.errors,
            line_buffering=bool(stream.line_buffering),
        )

    def write(self, text: str, /) -> int:
        with self._discarding():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._discarding():
            super().flush()

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _HANGUP_ERRNOS:
                raise
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self.fileno())
            os.close(devnull)


UNDER_MAKE: Final = "DLSCALE_MAKE"
"""Set in the environment by the Makefile."""
_UNITS: Final = re.compile("_(mib|ms|s)$")
_MORE_SWITCHES: Final = {"beside_host", "csv", "json", "markdown", "verbose"}  # of only some commands
_SWITCHES: Final = {name for name, field in Request.model_fields.items() if field.annotation is bool} | _MORE_SWITCHES
_NO_VARIABLES: Final = {"command", "links", "mounts"} | COMMAND_OPTIONS.keys()
_MORE_VARIABLES: Final = {"mount", "link_rate", "link_delay", "format", "program", "source"} | _MORE_SWITCHES
_VARIABLES: Final = {_UNITS.sub("", name) for name in Request.model_fields} - _NO_VARIABLES | _MORE_VARIABLES
_TARGETS: Final = ("doctor", "clean", "studies")
"""Commands that advice names without arguments or with flags, and that are also targets of make."""
# A command line in backticks, or a flag with its value: a word in capitals, or one with `:`, `/` or `.` in it.
_ADVICE: Final = re.compile(r"`dlscale ([^`]+)`|--([a-z][a-z-]*)(?:[= ]([A-Z]+\b|[^\s;,]*[:/.][^\s;,]+))?")


def in_user_terms(sentence: str) -> str:
    """Put a sentence in the user's terms: under `make`, `--oversubscribe` becomes `OVERSUBSCRIBE=1`."""
    return _ADVICE.sub(_for_make, sentence) if os.environ.get(UNDER_MAKE) else sentence


def _for_make(found: re.Match[str]) -> str:
    command, flag, value = found.groups()
    if command:
        target, *words = command.split()
        flags = [word.removeprefix("--").partition("=") for word in words if word.startswith("--")]
        given = [_variable(name, value or "...") for name, _, value in flags]
        known = target in _TARGETS and len(given) == len(words) and all(given)
        return f"`make {' '.join((target, *filter(None, given)))}`" if known else f"`.venv/bin/dlscale {command}`"
    return _variable(flag, value) or found[0]


def _variable(flag: str, value: str | None) -> str | None:
    """A flag in make's terms: ``"hosts", "a:4"`` is ``"HOSTS=a:4"``; None if make has no such variable."""
    name = flag.replace("-", "_")
    if name not in _VARIABLES:
        return None
    value = "1" if name in _SWITCHES else value
    return name.upper() + (f"={value}" if value else "")
