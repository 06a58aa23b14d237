"""Parses command-line arguments: returns a value, or raises a RequestError that names the variable and says what to type instead."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, get_args

from pydantic import ValidationError

from runner.core import yamlfile
from runner.core.console import notify
from runner.core.container_spec import Mount
from runner.core.errors import MAX_LISTED, RequestError, shorten, unknown
from runner.core.log_pattern import LogPattern
from runner.core.wire import Link, parse_delay, parse_rate

# Programs store numbers as signed 32-bit integers and add the rank to some, e.g. to seeds.
MAX_NUMBER: Final = 10**9
# These have lower limits: memory bounds batches and images, the kernel bounds threads and processes, patience bounds runs.
LIMITS: Final[Mapping[str, int]] = {
    "BATCH": 10**6,
    "BATCHES": 10**6,
    "IMAGES": 10**7,
    "IMAGE_SIZE": 65_535,  # also the limit of JPEG (ITU T.81, B.2.2)
    "SIDE": 65_535,
    "THREADS": 4096,
    "LOADER_WORKERS": 4096,
    "CONCURRENT": 4096,
    "REPEAT": 1000,
    "TELEMETRY_HZ": 1000,
}
MAX_SLOTS: Final = 4096
"""At most so many devices or cores a host."""
# Directories that the kernel, the engine and the suite provide in every container: nothing may be mounted over or in them.
RESERVED: Final = ("/proc", "/sys", "/dev", "/tmp", "/dlscale")  # noqa: S108 - names inside the container
_NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})
_DURATION = re.compile(r"^(\d+)(s|m|h)?$", re.ASCII)
_VARIABLE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^\x00]*)", re.ASCII | re.DOTALL)
_DEVICES: Final = re.compile(r"(?<!\$)\{(?:gpus|workers)\}")
_BATCH: Final = re.compile(
    r"(?<!\S)(?P<flag>-b|(?:--)?(?:\w+\.)*(?:per_device_train_)?batch[-_]size)(?:=|\s+)(?P<batch>\d{1,6})(?!\S)",
    re.ASCII,
)
_ACCUMULATION: Final = re.compile(r"(?:gradient|grad|ga)[-_]?accum\w*(?:[-_]\w+)*(?:=|\s+)(?!1(?!\S))\d", re.ASCII)
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


def bounded(name: str, digits: str, *, maximum: int | None = None) -> int:
    """Read ASCII digits, at least one of them nonzero, as a number; `maximum` overrides the variable's limit."""
    limit = maximum or LIMITS.get(name, MAX_NUMBER)
    significant = digits.lstrip("0")
    if len(significant) > len(str(limit)) or int(significant) > limit:
        raise RequestError(f"{name}={shorten(digits)} is too large; the maximum is {limit}")
    return int(significant)


def count(variable: str, text: str | None, *, least: int = 1) -> int | None:
    """Parse a whole number of at least 1, or with another `least` say so; returns None for None and the empty string."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        raise RequestError(
            f"{variable}={shorten(text)} is not a whole number of at least {least}; type for example {variable}=4"
        )
    return bounded(variable, text)


def counts(variable: str, text: str | None) -> tuple[int, ...] | None:
    """Parse a comma-separated sweep such as `1,2,4` into distinct whole numbers in ascending order."""
    if not text:
        return None
    values = {count(variable, part.strip()) for part in text.split(",")}
    found = sorted(value for value in values if value is not None)
    if len(found) != len(values):
        raise RequestError(f"{variable}={text} has an empty item; type for example {variable}=1,2,4")
    return tuple(found)


def non_negative(variable: str, text: str | None) -> int | None:
    """Parse a whole number of at least 0; returns None for None and the empty string."""
    return 0 if text and not text.strip("0") else count(variable, text, least=0)


def seconds(variable: str, text: str) -> int:
    """Parse a duration such as `90`, `90s`, `15m` or `2h` into seconds."""
    match = _DURATION.match(text)
    if not match or not match[1].strip("0"):
        raise RequestError(f"{variable}={shorten(text)} is not a duration; type for example {variable}=90s, 15m or 2h")
    return bounded(variable, str(bounded(variable, match[1]) * _SECONDS[match[2]]))


def one_of(
    variable: str,
    text: str,
    known: Iterable[str],
    *,
    aliases: Mapping[str, str] = _NO_ALIASES,
    most: int = MAX_LISTED,
) -> str:
    """Match a word to a known name: exactly, or else, with a notice, to the only one that differs in case and punctuation alone.

    `aliases` maps lower-case alternatives to known names. The error for any other word lists at most `most` of them.
    """
    names = tuple(known)
    if text in names:
        return text
    plain = bare(text)
    meant = {name for name in names if bare(name) == plain or name == aliases.get(plain)}
    if not plain or len(meant) != 1:
        raise RequestError(unknown(variable, shorten(text), names, most=most))
    (name,) = meant
    notify([f"{variable}={text} is taken as {name}"])
    return name


def bare(name: str) -> str:
    """Strip case and punctuation, which users vary: `ResNet-50` becomes `resnet50`."""
    return re.sub(r"[\W_]", "", name).lower()


def choice(variable: str, text: str | None, allowed: object, *, aliases: Mapping[str, str] = _NO_ALIASES) -> str | None:
    """Match a word to a value of a Literal type by `one_of`, whose error lists all values."""
    values = get_args(allowed)
    return one_of(variable, text, values, aliases=aliases, most=len(values)) if text else None


def choices(
    variable: str, text: str | None, allowed: object, *, aliases: Mapping[str, str] = _NO_ALIASES
) -> tuple[str, ...] | None:
    """Match a comma-separated sweep of words to values of a Literal type; duplicates are dropped, the order is kept."""
    if not text:
        return None
    words = [choice(variable, part.strip(), allowed, aliases=aliases) for part in text.split(",")]
    found = tuple(dict.fromkeys(word for word in words if word))
    if not all(words):
        raise RequestError(
            f"{variable}={text} has an empty item; type for example {variable}={','.join(get_args(allowed)[:2])}"
        )
    return found


def links(rate: str | None, delay: str | None) -> tuple[Link | None, ...] | None:
    """Parse LINK_RATE, a comma-separated sweep of tc rates in which `none` leaves the rate unlimited, and LINK_DELAY."""
    if not rate and not delay:
        return None
    try:
        delay_ms = parse_delay(delay) if delay else 0.0
        words = [word.strip() for word in (rate or "none").split(",")]
        rates = [None if word == "none" else parse_rate(word) for word in words]
    except ValueError as error:
        given = [f"{name}={text}" for name, text in (("LINK_RATE", rate), ("LINK_DELAY", delay)) if text]
        raise RequestError(f"{' '.join(given)}: {error}") from error
    found = [
        None if rate_mbit is None and not delay_ms else Link(rate_mbit=rate_mbit, delay_ms=delay_ms, emulated=True)
        for rate_mbit in rates
    ]
    return tuple(dict.fromkeys(found))


def mounts(texts: Iterable[str] | None) -> tuple[Mount, ...] | None:
    """Parse MOUNT, `SRC[:DST]` separated by commas or repeated, into absolute paths; symbolic links are not resolved."""
    found: dict[str, Mount] = {}
    for text in texts or ():
        for word in filter(None, (part.strip() for part in text.split(","))):
            mount = _mount(word)
            if other := found.get(mount.target):
                raise RequestError(
                    f"MOUNT mounts both {other.source} and {mount.source} at {mount.target}; give each a target of its own"
                )
            found[mount.target] = mount
    return tuple(found.values()) or None


def _mount(word: str) -> Mount:
    source, _, target = word.partition(":")
    if not source or ":" in target or word.endswith(":"):
        raise RequestError(
            f"MOUNT={word} is not SRC or SRC:DST; mounts are read-only anyway, type for example /opt:/opt"
        )
    path = Path(posixpath.abspath(source))
    target = target or str(path)
    if not path.exists():
        raise RequestError(f"MOUNT={word}: {path} does not exist; give a folder or file of this machine")
    if not target.startswith("/"):
        raise RequestError(f"MOUNT={word}: {target} is not an absolute path; give one in the container with SRC:/DST")
    target = posixpath.normpath("/" + target.lstrip("/"))
    if target == "/" or any(posixpath.commonpath((place, target)) == place for place in RESERVED):
        raise RequestError(
            f"MOUNT={word}: {target} is reserved, as are /, {', '.join(RESERVED)} and all below them; give another target with SRC:/DST"
        )
    return Mount(source=str(path), target=target)


def environment(texts: Iterable[str] | None) -> tuple[tuple[str, str], ...] | None:
    """Parse ENV, a repeated `NAME=VALUE`; the last value of a name wins."""
    found: dict[str, str] = {}
    for text in texts or ():
        match = _VARIABLE.fullmatch(text)
        if match is None:
            raise RequestError(f"ENV={shorten(text)} is not NAME=VALUE; type for example --env OMP_NUM_THREADS=4")
        found[match["name"]] = match["value"]
    return tuple(found.items()) or None


def settings(variable: str, text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``NAME=VALUE,NAME=VALUE``; the last value of a name wins."""
    found: dict[str, str] = {}
    for word in text.split(","):
        name, _, value = word.strip().partition("=")
        if not name or not value:
            raise RequestError(
                f"{variable}={shorten(text)} is not NAME=VALUE,...; type for example sequence-length=2048"
            )
        found[name.replace("_", "-")] = value
    return tuple(found.items())


def pattern(variable: str, text: str) -> LogPattern:
    """Parse a regular expression with named groups, or read several from a YAML file."""
    if text.endswith((".yaml", ".yml")):
        return yamlfile.load(Path(text), LogPattern)
    try:
        return LogPattern(lines=(text,))
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise RequestError(f"{variable}={shorten(text)}: {why}") from error


def names_devices(command: Iterable[str]) -> bool:
    """Whether a command has the placeholder `{gpus}` or `{workers}` for its number of devices."""
    return any(map(_DEVICES.search, command))


def with_devices(command: Iterable[str], count: int) -> tuple[str, ...]:
    """Replace the placeholder with a number of devices."""
    return tuple(_DEVICES.sub(str(count), word) for word in command)


def batch_of(command: Iterable[str]) -> tuple[int, str] | None:
    """Find the batch in a command line, and its text: `--batch-size 64`, `-b 64`, `train.batch_size=64`.

    None if it names no batch or several, or accumulates gradients: programs differ in the batches and devices that they count then.
    """
    line = " ".join(command)
    found = {} if _ACCUMULATION.search(line) else {int(match["batch"]): match[0] for match in _BATCH.finditer(line)}
    return next(iter(found.items())) if len(found) == 1 and 0 not in found else None
