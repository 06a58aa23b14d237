"""Names → categories, by the ordered patterns of `kernels.yaml`. Each name is looked at once, however many rows have it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar, cast

from pydantic import AfterValidator, BaseModel, Field

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
# The driver's versioned and per-thread-stream variants, and the callback ids that nsys appends, are one function:
# cuMemcpyHtoDAsync_v2_ptsz, cudaStreamSynchronize_v3020.
_VARIANT: Final = re.compile(r"(_v\d+|_pts[zd])+$")


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error
    return pattern


C = TypeVar("C")


class _Entry(BaseModel, Generic[C]):
    category: C
    patterns: tuple[Annotated[str, AfterValidator(_compiles)], ...] = Field(min_length=1)


class _Tables(Frozen):
    """The file: four lists, each ordered."""

    kernels: tuple[_Entry[Category], ...]
    copies: tuple[_Entry[Category], ...]
    calls: tuple[_Entry[CallClass], ...]
    operators: tuple[_Entry[Category], ...]


@functools.cache
def _compiled(table: str) -> tuple[tuple[re.Pattern[str], Any], ...]:
    entries: tuple[_Entry[Any], ...] = getattr(_tables(), table)
    return tuple((re.compile(pattern), entry.category) for entry in entries for pattern in entry.patterns)


@functools.cache
def _tables() -> _Tables:
    return yamlfile.load(PATTERNS, _Tables)


def _find(table: str, name: str) -> Any:
    return next(category for pattern, category in _compiled(table) if pattern.search(name))


def kernel(name: str) -> Category:
    """What a kernel of a GPU is for: ``kernel("maxwell_scudnn_winograd_128x128_...")`` is ``"convolution_winograd"``."""
    return cast("Category", _find("kernels", name))


def copy(name: str) -> Category:
    """From where to where a copy went: ``copy("Memcpy HtoD (Pinned -> Device)")`` is ``"copy_htod"``."""
    return cast("Category", _find("copies", name))


def direction(category: Category) -> Direction:
    """The direction of a copy's category."""
    return _DIRECTIONS.get(category, "other")


def operator(name: str) -> Category:
    """What an operator of a framework is for.

    TensorFlow's profiler writes ``name of the node:type of the operation``; only the type counts, since people name layers as they
    like.
    """
    kind = name if "::" in name or ":" not in name else name.rpartition(":")[2] or name
    return cast("Category", _find("operators", kind))


def function(name: str) -> str:
    """The function of the CUDA API that a call is of, without the suffix of a variant."""
    return _VARIANT.sub("", name)


def call(name: str) -> CallClass:
    """What a call of the CUDA API is for: ``call("cudaEventDestroy")`` is ``"event"``."""
    return cast("CallClass", _find("calls", function(name)))


@functools.cache
def category(kind: str, name: str) -> Category | CallClass | None:
    """The category of a row of table `kernels`, by its columns `kind` and `name`; None for a region, which is no work."""
    if kind == "set":
        return "memset"
    looks: dict[str, Callable[[str], Category | CallClass]] = {
        "kernel": kernel,
        "copy": copy,
        "call": call,
        "op": operator,
    }
    return looks[kind](name) if kind in looks else None
