"""A file that lines are appended to while a run goes on: what is on disk ends with a whole line, also where the disk is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class Appended:
    """Such a file. Nothing is kept back in memory: what a killed runner had heard is on disk."""

    def __init__(self, path: Path) -> None:
        """Open it, made if need be.

        Raises:
            OSError: it can't be.
        """
        self._file = path.open("ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def add(self, text: str) -> None:
        """Append a line.

        Raises:
            OSError: it can't be written; nothing of it is left.
        """
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
