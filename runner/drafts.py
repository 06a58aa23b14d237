"""Files that are there as a whole or not at all: written under another name, which says whose it is, and renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner import owner


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
