"""The disk below a folder of results: whether it takes anything, room kept on it, and one sentence where it takes no more."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from runner.core.errors import RequestError, RunFailedError
from runner.engines import owner


@contextmanager
def written(directory: Path) -> Iterator[None]:
    """Write something into a directory; where the system would not, the RunFailedError names it."""
    try:
        yield
    except OSError as error:
        raise RunFailedError(
            f"{directory}: can't be written ({error.strerror}); free some space or give another place with OUT=DIR, "
            "earlier records are untouched"
        ) from error


def keep_room(directory: Path, size: int) -> IO[bytes]:
    """So many bytes of a directory's disk in a file without a name, which leaves nothing when it is closed or its process killed."""
    with ExitStack() as undo:
        room = undo.enter_context(tempfile.TemporaryFile(dir=directory))
        os.posix_fallocate(room.fileno(), 0, size)
        undo.pop_all()
    return room


def check_writable(out: Path, *, room: int = 1) -> None:
    """Make the results directory and prove that it takes a file of so many bytes; a RequestError where it does not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        keep_room(out, room).close()
    except OSError as error:
        raise RequestError(f"OUT={out} can't be written ({error.strerror}); give another place with OUT=DIR") from error


class AppendOnly:
    """A file of lines, made if need be. Nothing is kept back in memory: what a killed runner had heard is on disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def add(self, text: str) -> None:
        """Append a line; nothing of it is left where it can't be written, which is an OSError."""
        line = f"{text}\n".encode()
        left = memoryview(line)
        try:
            while left:  # a disk that fills takes the first part
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close it; what the disk would not take was said when it was written."""
        with suppress(OSError):
            self._file.close()


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`, which it becomes at the end of the block; whatever fails, `path` is as it was and no draft is left."""
    own = path.with_name(f".{path.name}.{owner.own() or os.getpid()}")
    try:
        yield own
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)


def remove_left(folder: Path) -> None:
    """Remove the drafts in a folder of run directories, and in those, whose writer is certainly gone."""
    for path in (*folder.glob(".*"), *folder.glob("*/.*")):
        # What comes before the owner may have dots of its own.
        if owner.state(".".join(path.name.rsplit(".", 5)[1:])) == "gone":
            with suppress(OSError):
                path.unlink()
