"""The cache between runs of everything that can be fetched or built again: wheels, environments, bases, packed data."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def cache_dir() -> Path:
    """Return `$DLSCALE_CACHE`, else `dlscale` in the user's cache directory (XDG Base Directory Specification)."""
    chosen = os.environ.get("DLSCALE_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlscale"


@cache
def suite_digest() -> str:
    """Hash the runner's Python source: another version may derive other things from the same records."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def file_lock(path: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a file lock, so that two runs do not build the same thing; the kernel releases it even if this process is killed.

    `waiting` is called once if another process holds the lock.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_mib(path: Path) -> int:
    """Return the free disk space in MiB at `path`, or at its nearest existing parent."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free // 2**20
