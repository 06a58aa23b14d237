"""HOSTS: which machines a job may run on, from a `hosts.yaml`, an Open MPI hostfile, or `a:4,b:4` on the command line.

Reads the words and checks them against each other; whether the machines are so is the survey's business. The order of the file is
the order of the nodes, the first of which is where ranks meet.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runner.cluster.hosts.model import DEFAULT_SOCKET, Endpoint, GpuClaim, Host, Hosts, Interface, Role, Tls, read_url
from runner.core import yamlfile
from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.core.parsing import MOST_OF_ALL, MOST_SLOTS, bounded
from runner.core.wire import Link, parse_delay, parse_rate

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_HCA: Final = re.compile(r"[A-Za-z0-9_.-]+(:[1-9]\d*)?", re.ASCII)
_INTERFACE_LENGTH: Final = 15  # IFNAMSIZ of the kernel, less its closing zero


def load_hosts(text: str) -> Hosts:
    """Read HOSTS: a path (`.yaml` and `.yml` as hosts.yaml, any other file as an Open MPI hostfile), or `a:4,b:4`.

    Raises:
        RequestError: no such file, or something in it is wrong; the sentence names file and line.
    """
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        _refuse_missing(path)
        return _from_yaml(path)
    if _is_file(path):
        return _from_slots(parse_hostfile(path), source=text)
    if "/" in text:
        _refuse_missing(path)
    return _from_slots(parse_inline(text), source=text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a list of many hosts is too long for a file's name
        return False


def _refuse_missing(path: Path) -> None:
    if not _is_file(path):
        raise RequestError(
            f"HOSTS={path}: no such file; give a hosts.yaml, an Open MPI hostfile, or a list such as a:4,b:4"
        )


def _from_slots(entries: Iterable[Slots], *, source: str) -> Hosts:
    """Hosts that are known by name and slots alone: their engines are reached over ssh, this machine's own at its socket."""
    hosts = []
    for entry in entries:
        if not _NAME.fullmatch(entry.name):
            raise RequestError(
                f"{entry.place}: {entry.name!r} is no host name; letters, digits, '-', '_' and '.' make one"
            )
        if entry.user and not _NAME.fullmatch(entry.user):
            raise RequestError(f"{entry.place}: {entry.user!r} is no user name; write for example bench@{entry.name}")
        here = entry.name == "localhost"
        user = f"{entry.user}@" if entry.user else ""
        url = f"unix://{DEFAULT_SOCKET}" if here else f"ssh://{user}{entry.name}"
        hosts.append(Host(name=entry.name, endpoint=Endpoint(url=url), slots=entry.slots))
    return Hosts(hosts=tuple(hosts), source=source)


def _from_yaml(path: Path) -> Hosts:
    file = yamlfile.load(path, _File)
    link = file.link
    first: dict[str, int] = {}
    for index, entry in enumerate(file.hosts):
        if entry.name in first:
            raise RequestError(
                f"{path}: hosts[{first[entry.name]}] and hosts[{index}] are both named {entry.name!r}; give each a name of its own"
            )
        first[entry.name] = index
    return Hosts(
        hosts=tuple(entry.host(path.parent.absolute(), file.ssh_config) for entry in file.hosts),
        link=link and Link(rate_mbit=link.rate, delay_ms=link.delay, emulated=link.emulated),
        source=str(path),
    )


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a host's name is made of letters, digits, '-', '_' and '.'")
    return name


def _check_url(url: str) -> str:
    read_url(url)
    return url


def _check_interface(name: str) -> str:
    if not name or len(name) > _INTERFACE_LENGTH or "/" in name or any(letter.isspace() for letter in name):
        raise ValueError(
            f"an interface's name has 1 to {_INTERFACE_LENGTH} characters, no blank and no '/' (`ip link` lists them)"
        )
    return name


def _check_address(address: str) -> str:
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise ValueError("an IPv4 address is four numbers such as 10.1.0.1") from error


def _check_hca(name: str) -> str:
    if not _HCA.fullmatch(name):
        raise ValueError("an adapter is written mlx5_0, or with its port mlx5_0:1 (`ibstat` lists them)")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
Count = Annotated[int, Field(ge=1, le=MOST_OF_ALL)]
Parts = Annotated[int, Field(ge=1, le=MOST_SLOTS)]
Rate = Annotated[float, BeforeValidator(lambda value: parse_rate(str(value)))]
Delay = Annotated[float, BeforeValidator(lambda value: parse_delay(str(value)))]


class _Interface(Frozen):
    name: Annotated[str, AfterValidator(_check_interface)]
    address: Annotated[str, AfterValidator(_check_address)] | None = None


def _name_alone(value: Any) -> Any:
    """`ethernet: eno1` is short for `ethernet: {name: eno1}`."""
    return {"name": value} if isinstance(value, str) else value


def _count_alone(value: Any) -> Any:
    """`gpus: 4` is short for `gpus: {count: 4}`."""
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class _Entry(Frozen):
    """A host as the file writes it."""

    name: Name
    engine: Annotated[str, AfterValidator(_check_url)] | None = None
    tls: Tls | None = None
    slots: Parts | None = None
    cpus: Parts | None = None
    memory_mib: Count | None = None
    gpus: Annotated[GpuClaim, BeforeValidator(_count_alone)] | None = None
    driver: str | None = None
    interfaces: Mapping[Role, Annotated[_Interface, BeforeValidator(_name_alone)]] = {}
    hcas: tuple[Annotated[str, AfterValidator(_check_hca)], ...] = ()

    @model_validator(mode="after")
    def _check_tls(self) -> _Entry:
        engine = read_url(self.engine or f"ssh://{self.name}")
        if self.tls and engine.scheme != "tcp":
            raise ValueError(f"tls is for tcp:// engines, and this one is {engine.scheme}://")
        if engine.scheme == "tcp" and not self.tls and engine.host not in ("localhost", "127.0.0.1"):
            raise ValueError("tcp:// without tls makes everybody on the network root there; add tls, or write ssh://")
        return self

    def host(self, folder: Path, ssh_config: Path | None) -> Host:
        """The host with paths named from the file's `folder` on."""
        url = self.engine or f"ssh://{self.name}"
        ssh = ssh_config is not None and url.startswith("ssh://")
        return Host(
            name=self.name,
            endpoint=Endpoint(
                url=url,
                tls=self.tls.relative_to(folder) if self.tls else None,
                ssh_config=folder / ssh_config if ssh and ssh_config else None,
            ),
            slots=self.slots,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            gpus=self.gpus,
            driver=self.driver,
            interfaces={role: Interface(name=i.name, address=i.address) for role, i in self.interfaces.items()},
            hcas=self.hcas,
        )


class _Link(Frozen):
    """The link as the file writes it, in tc's units."""

    rate: Rate | None = None
    delay: Delay = 0.0
    emulated: bool = False


class _File(Frozen):
    """`hosts.yaml` as it is written."""

    ssh_config: Path | None = None
    link: _Link | None = None
    hosts: Annotated[tuple[_Entry, ...], Field(min_length=1)]


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
