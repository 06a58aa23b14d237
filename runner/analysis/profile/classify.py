"""Names → categories, by the ordered patterns of `kernels.yaml`. Each distinct name is matched once."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, Field

from runner.core import yamlfile
from runner.core.frozen import Frozen
from runner.core.profile import CallClass, Category, Direction

PATTERNS: Final = Path(__file__).with_name("kernels.yaml")

_DIRECTIONS: Final[dict[Category, Direction]] = {
    "copy_htod": "HtoD",
    "copy_dtoh": "DtoH",
    "copy_dtod": "DtoD",
    "copy_ptop": "PtoP",
    "copy_htoh": "HtoH",
}
# Suffixes of versioned and per-thread-stream variants, and nsys's callback ids, are stripped: cuMemcpyHtoDAsync_v2_ptsz,
# cudaStreamSynchronize_v3020.
_VARIANT: Final = re.compile(r"(_v\d+|_pts[zd])+$")


C = TypeVar("C")


class _Entry(BaseModel, Generic[C]):
    category: C
    patterns: tuple[re.Pattern[str], ...] = Field(min_length=1)


class _Tables(Frozen):
    """The file's four ordered lists."""

    kernels: tuple[_Entry[Category], ...]
    copies: tuple[_Entry[Category], ...]
    calls: tuple[_Entry[CallClass], ...]
    operators: tuple[_Entry[Category], ...]


@functools.cache
def _tables() -> dict[str, tuple[_Entry[Any], ...]]:
    found = yamlfile.load(PATTERNS, _Tables)
    return {"kernel": found.kernels, "copy": found.copies, "call": found.calls, "op": found.operators}


@functools.cache
def category(kind: str, name: str) -> Any:
    """The `Category` of a row of table `kernels`, or the `CallClass` of a call; None for a region, which is not work.

    TensorFlow's profiler names an operator ``node name:operation type``; only the type counts, since users name layers freely.
    """
    if kind == "set":
        return "memset"
    if kind not in _tables():
        return None
    text = function(name) if kind == "call" else name
    if kind == "op" and "::" not in name:
        text = name.rpartition(":")[2] or name
    return next(one.category for one in _tables()[kind] if any(pattern.search(text) for pattern in one.patterns))


def direction(category: Any) -> Direction:
    """The direction of a copy of this `Category`."""
    return _DIRECTIONS.get(category, "other")


def function(name: str) -> str:
    """The CUDA API function of a call, without its variant's suffix."""
    return _VARIANT.sub("", name)
