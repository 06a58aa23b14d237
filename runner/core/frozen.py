"""`Frozen`: what a value of the suite is made of, how it is read from a file, and what is made of it once."""

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
    """A value: never changed, without a key that nobody reads, and finite in every number, also in one that is read from a text."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=120)]
"""What files are named by: a folder of somebody else's records may not say where on this machine a report is written."""


# What may be no figure, or a code to a terminal; quick searches, as each record is searched.
_NO_FIGURES: Final = ("NaN", "Infinity")
_HUGE: Final = re.compile(r"[eE]\+?\d{3}\d*[\s,\]}]")
_CODES: Final = ("\\u", "\\b", "\\f", "\\r")
# Each byte of UTF-8 for its kind, so that one search each finds a number of more than 64 bits, a control and a surrogate.
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
_REFUSED: Final = (b" " + b"0" * 19, b"~", b"Cc", b"Ss")
# A text that pydantic would take for such a number.
_AS_NUMBER: Final = re.compile(r"\s*[+-]?[\d_]{19,}(?:\.\d*)?\s*")
_MOST: Final = 2**63
_Value = TypeVar("_Value")
_Made = TypeVar("_Made")


class Once(Generic[_Value, _Made]):
    """A function that makes its answer for each value once, and keeps it as long as that value lives.

    Values are told apart by which one they are: records would be compared by all that is in them.
    """

    def __init__(self, make: Callable[[_Value], _Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[weakref.ref[_Value], _Made]] = {}

    def __call__(self, value: _Value) -> _Made:
        """The answer."""
        if id(value) not in self._known:
            place, known = id(value), self._known
            known[place] = weakref.ref(value, lambda _: known.pop(place, None)), self._make(value)
        return self._known[id(value)][1]


def load_fields(text: str, *, of: Callable[[str], float | None] | None = None) -> dict[str, Any]:
    """An object of JSON whose numbers are all finite, of 64 bits where they are whole, and whose texts hold no code to a terminal.

    All else is a ValueError, but for numbers that are not finite where `of` says what they are taken for.
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
    return is_plain_but_for_figures(text) and not (any(word in text for word in _NO_FIGURES) or _HUGE.search(text))


def is_plain_but_for_figures(text: str) -> bool:
    """Whether a JSON holds no code to a terminal and no number of more than 64 bits: all else a `Frozen` refuses by itself."""
    kinds = text.encode(errors="surrogatepass").translate(_KINDS)
    return not any(refused in kinds for refused in _REFUSED) and not (
        "\\" in text and any(code in text for code in _CODES)
    )


def _finite(word: str) -> float:
    if (found := known(word)) is not None:
        return found
    raise ValueError(f"it holds {shorten(word)}, which is no figure")


def _whole(word: str) -> int:
    if -_MOST <= (found := int(word)) < _MOST:
        return found
    raise ValueError(f"it holds {shorten(word)}, which is no figure")


def _without_codes(value: Any) -> Any:
    """What JSON holds, every text in it without a code to a terminal."""
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


@contextmanager
def reading(path: Path, what: str, *, step: str) -> Iterator[None]:
    """Read a file into a value; where it can't be read or is damaged, the RequestError says `what` it is not, why, and the next step."""
    try:
        yield
    except ValidationError as error:
        raise RequestError(f"{path}: {what}, {misfit(error)}; {step}") from error
    # ValueError: no JSON, or no UTF-8.
    except (OSError, ValueError, LookupError, RecursionError, AttributeError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise RequestError(f"{path}: {what} ({why}); {step}") from error


def refuse_newer(fields: Mapping[str, Any], path: Path, *, newest: int) -> None:
    """Refuse what a newer version of the suite wrote, by the number of the schema that a file has."""
    version = fields.get("schema")
    if isinstance(version, int) and version > newest:
        raise RequestError(f"{path}: schema {version} is newer than this version's {newest}; update dlscale to read it")
