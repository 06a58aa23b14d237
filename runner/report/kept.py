"""Pictures that were drawn before, by all that they are drawn from: drawing takes 0.2 s each, and a report of records that are on file draws hundreds.

A picture is found by a digest of its values and of the suite's programs, so that one of other values is never taken for it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from pydantic import BaseModel

from runner.core.cache import cache_dir, suite_digest

if TYPE_CHECKING:
    from pathlib import Path

P = ParamSpec("P")
Draw = Callable[P, bytes | None]
MOST_BYTES: Final = 256 * 2**20


def kept(draw: Draw[P]) -> Draw[P]:
    """Draw a picture when none was drawn of the same values."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **values: P.kwargs) -> bytes | None:
        digest = hashlib.sha256(_drawn_by().encode())
        for said in _told((draw.__qualname__, draw.__module__, args, values)):
            digest.update(said + b"\0")
        path = _place() / f"{digest.hexdigest()}.png"
        with suppress(OSError):
            found = path.read_bytes()
            os.utime(path)  # so that `prune` takes those that nobody asks for
            return found
        made = draw(*args, **values)
        if made is not None:
            with suppress(OSError):  # a picture that is not kept is drawn again
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_suffix(f".{os.getpid()}")
                draft.write_bytes(made)
                draft.replace(path)
        return made

    return drawn


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


def _told(value: Any) -> Iterable[bytes]:
    """All that a picture is drawn from, as bytes that are the same in each process."""
    if isinstance(value, BaseModel):
        yield value.model_dump_json().encode()
    elif isinstance(value, tuple | list):
        yield f"[{len(value)}".encode()
        for one in value:
            yield from _told(one)
    elif isinstance(value, dict):
        yield from _told(tuple(value.items()))
    elif hasattr(value, "to_parquet"):  # a frame
        yield _bytes_of(value)
    else:
        yield repr(value).encode()


def _bytes_of(frame: Any) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load

    sink = pa.BufferOutputStream()
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
