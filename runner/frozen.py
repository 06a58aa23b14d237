"""`Frozen`: what a value of the suite is made of, and which versions of it can be read from a file."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, StringConstraints

from runner.errors import RequestError


class Frozen(BaseModel):
    """A value: never changed, and without a key that nobody reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")


FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=200)]
"""What files are named by: a folder of somebody else's records may not say where on this machine a report is written."""


_Value = TypeVar("_Value")
_EQUAL: Final[dict[Any, Any]] = {}
_KNOWN: Final[dict[tuple[type, frozenset[str]], set[str]]] = {}


def lean(value: _Value) -> _Value:
    """The same value in a third of the memory, as thousands of records are held at once.

    Attributes that are set one by one share the names' table between all values of a type, and which fields were given is kept once for
    all values that were given the same. A type with `of_many` set is one of which many records have an equal value: it is kept once.
    """
    if isinstance(value, float | int | None):
        return value
    if isinstance(value, BaseModel):
        found = type(value).__new__(type(value))
        for name, one in value.__dict__.items():
            object.__setattr__(found, name, lean(one))
        given = value.__pydantic_fields_set__
        object.__setattr__(found, "__pydantic_fields_set__", _KNOWN.setdefault((type(value), frozenset(given)), given))
        object.__setattr__(found, "__pydantic_extra__", value.__pydantic_extra__)
        object.__setattr__(found, "__pydantic_private__", value.__pydantic_private__)
        return _EQUAL.setdefault(found, found) if getattr(found, "of_many", False) else found
    same: Any = value
    if isinstance(value, str):
        same = sys.intern(value)
    elif isinstance(value, tuple):
        same = tuple(map(lean, value))
    elif isinstance(value, dict):
        same = {key: lean(one) for key, one in value.items()}
    return cast("_Value", same)


# What may be more than a float holds.
_HUGE: Final = re.compile(r"[eE]\+?\d{3}")


def load_fields(text: str) -> dict[str, Any]:
    """An object of JSON whose numbers are all finite.

    Raises:
        ValueError: it is none, or a number is infinite or not one.
    """
    huge = _finite if _HUGE.search(text) else None
    fields: dict[str, Any] = json.loads(text, parse_constant=_finite, parse_float=huge)
    return fields


def _finite(word: str) -> float:
    if math.isfinite(found := float(word)):
        return found
    raise ValueError(f"it holds {word}, which is no figure")


def refuse_newer(fields: Mapping[str, Any], path: Path, *, newest: int) -> None:
    """Refuse what a newer version of the suite wrote, by the number of the schema that a file has.

    Raises:
        RequestError: it is above `newest`.
    """
    version = fields.get("schema")
    if isinstance(version, int) and version > newest:
        raise RequestError(f"{path}: schema {version} is newer than this version's {newest}; update dlscale to read it")
