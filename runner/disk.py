"""The disk below a folder of results: whether it takes anything, room kept on it, and one sentence where it takes no more."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from runner.errors import RequestError, RunFailedError


@contextmanager
def written(directory: Path) -> Iterator[None]:
    """Write something into a directory.

    Raises:
        RunFailedError: the system would not; the sentence names the directory.
    """
    try:
        yield
    except OSError as error:
        raise RunFailedError(
            f"{directory}: can't be written ({error.strerror}); free some space or give another place with OUT=DIR, "
            "earlier records are untouched"
        ) from error


def keep_room(directory: Path, size: int) -> IO[bytes]:
    """So many bytes of a directory's disk in a file without a name: closed, or with its process killed, it leaves nothing.

    Raises:
        OSError: they can't be had.
    """
    with ExitStack() as undo:
        room = undo.enter_context(tempfile.TemporaryFile(dir=directory))
        os.posix_fallocate(room.fileno(), 0, size)
        undo.pop_all()
    return room


def check_writable(out: Path, *, room: int = 1) -> None:
    """Make the results directory and prove that it takes a file of so many bytes.

    Raises:
        RequestError: it does not.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        keep_room(out, room).close()
    except OSError as error:
        raise RequestError(f"OUT={out} can't be written ({error.strerror}); give another place with OUT=DIR") from error
