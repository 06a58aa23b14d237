"""Hosts by name and number of slots: `a:4,b:4` as mpirun's -H takes it, and Open MPI's hostfile (`a slots=4`, one a line).

The grammar of the file is that of Open MPI's mpirun(1), "Specifying Hosts".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.core.errors import RequestError
from runner.core.parsing import MOST_SLOTS, bounded

_ENTRY: Final = re.compile(r"(?:(?P<user>[^@\s:]+)@)?(?P<name>[^@\s:]+)(?::(?P<slots>.*))?")
_EQUALS: Final = re.compile(r"\s*=\s*")
# Open MPI's limit for starting more processes than slots, which the suite never does.
_LIMITS: Final = ("max_slots", "max-slots")


@dataclass(frozen=True, kw_only=True)
class Slots:
    """A host and how many devices of it a job may use; None for all of them. `place` is where this was read."""

    name: str
    user: str | None
    slots: int | None
    place: str


def parse_inline(text: str) -> tuple[Slots, ...]:
    """Read `a:4,b:4`; a host without a number offers all its devices.

    Raises:
        RequestError: an empty place, a host twice, or slots that are no number.
    """
    found: list[Slots] = []
    for part in text.split(","):
        place = f"HOSTS={text}"
        match = _ENTRY.fullmatch(part.strip())
        if not match:
            raise RequestError(f"{place}: {part.strip()!r} is no host with its slots; write for example a:4,b:4")
        slots = None if match["slots"] is None else _count(match["slots"], place=place, name=match["name"])
        found.append(_new(Slots(name=match["name"], user=match["user"], slots=slots, place=place), found))
    return tuple(found)


def parse_hostfile(path: Path) -> tuple[Slots, ...]:
    """Read an Open MPI hostfile; a host without `slots=` offers all its devices.

    Raises:
        RequestError: the file can't be read or names no host, a host twice, or something else than slots; with the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: can't be read ({error.strerror}); give a file that you may read") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is no text; give a hostfile with one `host slots=4` a line") from error
    found: list[Slots] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{path}:{number}"
        words = _EQUALS.sub("=", line.partition("#")[0]).split()
        if not words:
            continue
        match = _ENTRY.fullmatch(words[0])
        if not match or match["slots"] is not None:
            raise RequestError(f"{place}: {words[0]!r} is no host name; write for example `a slots=4`")
        settings = dict(_setting(word, place=place) for word in words[1:])
        slots = _count(settings["slots"], place=place, name=match["name"]) if "slots" in settings else None
        found.append(_new(Slots(name=match["name"], user=match["user"], slots=slots, place=place), found))
    if not found:
        raise RequestError(f"{path}: names no host; write one a line, for example `a slots=4`")
    return tuple(found)


def _setting(word: str, *, place: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    if key not in ("slots", *_LIMITS):
        raise RequestError(f"{place}: unknown word {word!r}; a line is a host and slots=N")
    return key, value


def _count(text: str, *, place: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        raise RequestError(f"{place}: slots of {name} are {text!r}, which is no whole number of at least 1; correct it")
    return bounded(f"{place}: slots of {name}", text, most=MOST_SLOTS)


def _new(entry: Slots, before: list[Slots]) -> Slots:
    if any(other.name == entry.name for other in before):
        raise RequestError(f"{entry.place}: {entry.name} is listed twice; name it once, with all its slots")
    return entry
