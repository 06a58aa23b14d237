"""`Frozen`: base class of the suite's values, with what reads them safely from files and caches what is derived from them."""

from __future__ import annotations

import json
import math
import re
import string
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from runner.core.errors import RequestError, is_utf8, one_line, printable, shorten


class Frozen(BaseModel):
    """A value: immutable, without unknown keys, and with finite numbers only, including those parsed from text."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=120)]
"""A value that names files: records from elsewhere must not determine where on this machine a report is written."""


# Quick searches for what may be a non-finite number or a terminal control sequence: every record is searched.
_NON_FINITE: Final = ("NaN", "Infinity")
_HUGE: Final = re.compile(r"[eE]\+?\d{3}\d*[\s,\]}]")
_ESCAPES: Final = ("\\u", "\\b", "\\f", "\\r")
# Maps each byte of UTF-8 to a kind, so that one search each finds an integer beyond 64 bits, a control character and a surrogate.
_BYTES_OF_KIND: Final = {
    "0": string.digits.encode(),
    "a": f"{string.ascii_letters}_.".encode(),
    "~": b"\x7f",
    "C": b"\xc2",
    "c": bytes(range(0x80, 0xA0)),
    "S": b"\xed",
    "s": bytes(range(0xA0, 0xC0)),
}
_KINDS: Final = bytes(
    next((ord(kind) for kind, own in _BYTES_OF_KIND.items() if byte in own), ord(" ")) for byte in range(256)
)
_SUSPECT: Final = (b" " + b"0" * 19, b"~", b"Cc", b"Ss")
# A text that pydantic may parse as an integer beyond 64 bits; some of these fit.
_HUGE_INTEGER: Final = re.compile(r"\s*[+-]?[\d_]{19,}(?:\.\d*)?\s*")
_INT64_LIMIT: Final = 2**63
_INT64_LENGTH: Final = len(str(-_INT64_LIMIT))
_Value = TypeVar("_Value")
_Made = TypeVar("_Made")


class CachedByIdentity(Generic[_Value, _Made]):
    """Caches a function's result for each value, for the lifetime of that value.

    Values are compared by identity: records compare all their fields, which is slow.
    """

    def __init__(self, make: Callable[[_Value], _Made]) -> None:
        self._make = make
        self._cache: dict[int, tuple[weakref.ref[_Value], _Made]] = {}

    def __call__(self, value: _Value) -> _Made:
        """Return the result for a value."""
        if id(value) not in self._cache:
            key, cache = id(value), self._cache
            cache[key] = weakref.ref(value, lambda _: cache.pop(key, None)), self._make(value)
        return self._cache[id(value)][1]


def load_fields(text: str, *, parse_float: Callable[[str], float | None] | None = None) -> dict[str, Any]:
    """Parse a JSON object, and strip terminal control sequences from its texts.

    Raises ValueError for any other JSON, for an integer beyond 64 bits, for text that is not UTF-8, and for a non-finite number unless
    `parse_float` converts it.
    """
    read = parse_float or _finite
    fields = (
        json.loads(text)
        if is_plain(text)
        else _sanitized(json.loads(text, parse_constant=read, parse_float=read, parse_int=_int64))
    )
    if not isinstance(fields, dict):
        raise ValueError("it is JSON, but no object")  # noqa: TRY004 - of the text, not of an argument
    return fields


def finite_or_none(word: str) -> float | None:
    """Convert a number; None if it is not finite."""
    return found if math.isfinite(found := float(word)) else None


def is_plain(text: str) -> bool:
    """Whether a JSON text contains nothing that `load_fields` would refuse or strip."""
    return is_plain_except_floats(text) and not (any(word in text for word in _NON_FINITE) or _HUGE.search(text))


def is_plain_except_floats(text: str) -> bool:
    """Whether a JSON text contains no terminal control sequence, no surrogate and no integer beyond 64 bits; a `Frozen` itself refuses the rest."""
    kinds = text.encode(errors="surrogatepass").translate(_KINDS)
    return not any(refused in kinds for refused in _SUSPECT) and not (
        "\\" in text and any(code in text for code in _ESCAPES)
    )


def _finite(word: str) -> float:
    if (found := finite_or_none(word)) is not None:
        return found
    raise ValueError(f"it holds {shorten(word)}, which is not a finite 64-bit number")


def _int64(word: str) -> int:
    if _fits_64_bits(found := int(word)):
        return found
    raise ValueError(f"it holds {shorten(word)}, which is not a finite 64-bit number")


def _fits_64_bits(number: int) -> bool:
    return -_INT64_LIMIT <= number < _INT64_LIMIT


def _is_beyond_64_bits(text: str) -> bool:
    number = text.strip().partition(".")[0].replace("_", "")
    if not number.lstrip("+-").isdigit():  # a line of underscores
        return False
    return len(number) > _INT64_LENGTH or not _fits_64_bits(int(number))


def _sanitized(value: Any) -> Any:
    """Strip terminal control sequences from every text in a JSON value."""
    if isinstance(value, str):
        if not is_utf8(value):
            raise ValueError("a text in it is not UTF-8")
        if _HUGE_INTEGER.fullmatch(value) and _is_beyond_64_bits(value):
            raise ValueError(f"it holds {shorten(value)}, which is not a finite 64-bit number")
        return printable(value)
    if isinstance(value, list):
        return [_sanitized(one) for one in value]
    return {_sanitized(name): _sanitized(one) for name, one in value.items()} if isinstance(value, dict) else value


def first_error(error: ValidationError) -> str:
    """Describe the first error of a validation: where, and why."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"at {where} ({first['msg']})" if where else first["msg"])


@contextmanager
def reading(path: Path, what: str, *, step: str) -> Iterator[None]:
    """Turn errors of reading a file into a RequestError that says `what` is wrong, why, and the next step."""
    try:
        yield
    except ValidationError as error:
        raise RequestError(f"{path}: {what}, {first_error(error)}; {step}") from error
    # ValueError: not JSON, or not UTF-8.
    except (OSError, ValueError, LookupError, RecursionError, AttributeError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise RequestError(f"{path}: {what} ({why}); {step}") from error


def refuse_newer(fields: Mapping[str, Any], path: Path, *, newest: int) -> None:
    """Refuse a file that a newer version of the suite wrote, by its schema number."""
    version = fields.get("schema")
    if isinstance(version, int) and version > newest:
        raise RequestError(f"{path}: schema {version} is newer than this version's {newest}; update dlscale to read it")
