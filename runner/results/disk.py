"""The disk that holds results: checks that it can be written, reserves space, and turns failures into one sentence."""

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
def writing(directory: Path) -> Iterator[None]:
    """Convert an OSError from writing to a directory to a RunFailedError that names the directory."""
    try:
        yield
    except OSError as error:
        raise RunFailedError(
            f"{directory}: can't be written ({error.strerror}); free some space or choose another OUT=DIR; "
            "earlier records are untouched"
        ) from error


def reserve(directory: Path, size: int) -> IO[bytes]:
    """Reserve bytes of a directory's disk in an unnamed file, which vanishes when it is closed or the process is killed."""
    with ExitStack() as undo:
        room = undo.enter_context(tempfile.TemporaryFile(dir=directory))
        os.posix_fallocate(room.fileno(), 0, size)
        undo.pop_all()
    return room


def check_writable(out: Path, *, room: int = 1) -> None:
    """Create the results directory and prove that a file of `room` bytes fits. Raises RequestError if not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        reserve(out, room).close()
    except OSError as error:
        raise RequestError(f"OUT={out} can't be written ({error.strerror}); choose another OUT=DIR") from error


class AppendOnly:
    """A file of lines, created if missing and written without buffering: a killed runner's lines are in the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def add(self, text: str) -> None:
        """Append a line. Raises OSError if it can't be written, and then leaves no part of it."""
        line = f"{text}\n".encode()
        left = memoryview(line)
        try:
            while left:  # a full disk accepts only the first part
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close the file; errors were reported when the lines were written."""
        with suppress(OSError):
            self._file.close()


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """Yield a draft that replaces `path` at the end of the block; on failure `path` is unchanged and the draft removed."""
    temporary = path.with_name(f".{path.name}.{owner.this_process() or os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_stale_drafts(folder: Path) -> None:
    """Remove drafts in a folder of run directories, and in the run directories, if their writers are certainly gone."""
    for path in (*folder.glob(".*"), *folder.glob("*/.*")):
        # The part before the owner may contain dots.
        if owner.state(".".join(path.name.rsplit(".", 5)[1:])) == "gone":
            with suppress(OSError):
                path.unlink()
