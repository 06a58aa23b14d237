"""Pictures that were drawn before, by all that they are drawn from: drawing takes 0.2 s each, and a report of records that are on file draws hundreds.

A picture is found by a digest of its values and of the suite's programs, so that one of other values is never taken for it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, ParamSpec

from runner.core.cache import cache_dir, suite_digest
from runner.report import canvas

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure as Sheet

P = ParamSpec("P")
MOST_BYTES: Final = 256 * 2**20


def kept(draw: Callable[P, Sheet | None]) -> Callable[P, bytes | None]:
    """Make a PNG of what is drawn, when none was made of the same values; these have to be told by their `repr`."""

    @functools.wraps(draw)
    def png(*args: P.args, **values: P.kwargs) -> bytes | None:
        told = f"{_drawn_by()} {args!r} {values!r}"
        path = _place() / f"{hashlib.sha256(told.encode()).hexdigest()}.png"
        with suppress(OSError):
            found = path.read_bytes()
            os.utime(path)  # so that `prune` takes those that nobody asks for
            return found
        made = canvas.png(draw(*args, **values))
        if made is not None:
            with suppress(OSError):  # a picture that is not kept is drawn again
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_suffix(f".{os.getpid()}")
                draft.write_bytes(made)
                draft.replace(path)
        return made

    return png


def prune() -> None:
    """Remove those that were not asked for the longest, down to `MOST_BYTES`."""
    with suppress(OSError):
        known = sorted(((path.stat(), path) for path in _place().iterdir()), key=lambda one: -one[0].st_mtime_ns)
        size = 0
        for about, path in known:
            size += about.st_size
            if size > MOST_BYTES:
                path.unlink(missing_ok=True)


def _place() -> Path:
    return cache_dir() / "pictures"


@functools.cache
def _drawn_by() -> str:
    return " ".join((suite_digest(), version("matplotlib"), version("pillow")))
