"""`Frozen`: what a value of the suite is made of, and which versions of it can be read from a file."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from runner.core.errors import RequestError, is_utf8, one_line, printable, shorten


class Frozen(BaseModel):
    """A value: never changed, without a key that nobody reads, and finite in every number, also in one that is read from a text."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=120)]
"""What files are named by: a folder of somebody else's records may not say where on this machine a report is written."""


# What may be no figure, more than 64 bits hold, or a code to a terminal; several quick searches, as each record is searched. The digits of
# a digest end with a quote, a number does not.
_WORDS: Final = ("NaN", "Infinity", "\\u", "\\b", "\\f", "\\r", "\x7f")
_HUGE: Final = re.compile(r"[eE]\+?\d{3}\d*[\s,\]}]")
_LONG: Final = re.compile(r'[\s:,\["]-?\d{19}')
_CONTROLS: Final = re.compile(r"[\x80-\x9f\ud800-\udfff]")
# A text that pydantic would take for such a number.
_AS_NUMBER: Final = re.compile(r"\s*[+-]?[\d_]{19,}(?:\.\d*)?\s*")
_MOST: Final = 2**63
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


def load_fields(text: str, *, of: Callable[[str], float | None] | None = None) -> dict[str, Any]:
    """An object of JSON whose numbers are all finite, of 64 bits where they are whole, and whose texts hold no code to a terminal.

    Args:
        text: the JSON.
        of: what a number that may not be finite is taken for; None where it is refused.

    Raises:
        ValueError: it is none, or a number is not finite or has more bits.
    """
    read = of or _finite
    fields: dict[str, Any] = (
        json.loads(text)
        if is_plain(text)
        else _without_codes(json.loads(text, parse_constant=read, parse_float=read, parse_int=_whole))
    )
    return fields


def known(word: str) -> float | None:
    """A number; None for one that is not finite."""
    return found if math.isfinite(found := float(word)) else None


def is_plain(text: str) -> bool:
    """Whether nothing in a JSON is for `load_fields` to refuse or to take out."""
    if any(word in text for word in _WORDS) or _HUGE.search(text) or _LONG.search(text):
        return False
    return text.isascii() or not _CONTROLS.search(text)


def _finite(word: str) -> float:
    if (found := known(word)) is not None:
        return found
    raise ValueError(f"it holds {shorten(word)}, which is no figure")


def _whole(word: str) -> int:
    if -_MOST <= (found := int(word)) < _MOST:
        return found
    raise ValueError(f"it holds {shorten(word)}, which is no figure")


def _without_codes(value: Any) -> Any:
    """What JSON holds, every text in it without a code to a terminal.

    Raises:
        ValueError: a text holds a lone surrogate, which no file can.
    """
    if isinstance(value, str):
        if not is_utf8(value):
            raise ValueError("a text in it is not UTF-8")
        if _AS_NUMBER.fullmatch(value):
            raise ValueError(f"it holds {shorten(value)}, which is no figure")
        return printable(value)
    if isinstance(value, list):
        return [_without_codes(one) for one in value]
    return (
        {_without_codes(name): _without_codes(one) for name, one in value.items()} if isinstance(value, dict) else value
    )


def misfit(error: ValidationError) -> str:
    """Where the first thing of a file is that does not fit its model, and why."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"at {where} ({first['msg']})" if where else first["msg"])


def refuse_newer(fields: Mapping[str, Any], path: Path, *, newest: int) -> None:
    """Refuse what a newer version of the suite wrote, by the number of the schema that a file has.

    Raises:
        RequestError: it is above `newest`.
    """
    version = fields.get("schema")
    if isinstance(version, int) and version > newest:
        raise RequestError(f"{path}: schema {version} is newer than this version's {newest}; update dlscale to read it")
