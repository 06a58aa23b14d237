"""Standard output and error that may go away while a command still works: a pipe into `head`, a terminal that is closed.

What is printed from then on is lost; the work, its files and its exit code are not. Nor does a letter that its encoding lacks end a command.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

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
