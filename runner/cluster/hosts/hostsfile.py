"""HOSTS: which machines a job may run on, from a `hosts.yaml`, an Open MPI hostfile, or `a:4,b:4` on the command line.

Reads the words and checks them against each other; whether the machines are so is the survey's business. The order of the file is
the order of the nodes, the first of which is where ranks meet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runner.cluster.hosts.model import DEFAULT_SOCKET, Claims, Endpoint, Host, Hosts, Tls, read_url
from runner.core import yamlfile
from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.core.parsing import MOST_SLOTS, bounded
from runner.core.request import SLURM
from runner.core.wire import Link, parse_delay, parse_rate

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def load_hosts(text: str) -> Hosts:
    """Read HOSTS: a path (`.yaml` and `.yml` as hosts.yaml, any other file as an Open MPI hostfile), or `a:4,b:4`.

    Raises RequestError, which names file and line.
    """
    if text == SLURM:
        raise RequestError(
            "HOSTS=slurm stands for the nodes of the Slurm job that a run is in, and nothing else; see `sinfo` and `squeue`"
        )
    path = Path(text)
    listed = path.suffix in (".yaml", ".yml")
    try:
        there = path.is_file()
    except (OSError, ValueError):  # a list of many hosts is too long for a file's name
        there = False
    if not there and (listed or "/" in text):
        raise RequestError(
            f"HOSTS={path}: no such file; give a hosts.yaml, an Open MPI hostfile, or a list such as a:4,b:4"
        )
    if listed:
        return _from_yaml(path)
    return Hosts(hosts=_from_hostfile(path) if there else _from_list(text), source=text)


def _from_yaml(path: Path) -> Hosts:
    file = yamlfile.load(path, _File)
    first: dict[str, int] = {}
    for index, entry in enumerate(file.hosts):
        if entry.name in first:
            raise RequestError(
                f"{path}: hosts[{first[entry.name]}] and hosts[{index}] are both named {entry.name!r}; give each a name of its own"
            )
        first[entry.name] = index
    found = tuple(entry.host(path.parent.absolute(), file.ssh_config) for entry in file.hosts)
    link = file.link and Link(rate_mbit=file.link.rate, delay_ms=file.link.delay, emulated=file.link.emulated)
    return Hosts(hosts=found, link=link, source=str(path))


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a host's name is made of letters, digits, '-', '_' and '.'")
    return name


def _check_url(url: str) -> str:
    read_url(url)
    return url


Name = Annotated[str, AfterValidator(_check_name)]
Rate = Annotated[float, BeforeValidator(lambda value: parse_rate(str(value)))]
Delay = Annotated[float, BeforeValidator(lambda value: parse_delay(str(value)))]


class _Entry(Claims):
    """A host as the file writes it."""

    name: Name
    engine: Annotated[str, AfterValidator(_check_url)] | None = None
    tls: Tls | None = None

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
        endpoint = Endpoint(
            url=url,
            tls=self.tls.relative_to(folder) if self.tls else None,
            ssh_config=folder / ssh_config if ssh_config and url.startswith("ssh://") else None,
        )
        return Host(endpoint=endpoint, **{field: getattr(self, field) for field in Claims.model_fields})


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


def _from_list(text: str) -> tuple[Host, ...]:
    """Read `a:4,b:4`; a host without a number offers all its devices."""
    found: list[Host] = []
    place = f"HOSTS={text}"
    for part in text.split(","):
        match = _ENTRY.fullmatch(part.strip())
        if not match:
            raise RequestError(f"{place}: {part.strip()!r} is no host with its slots; write for example a:4,b:4")
        found.append(_host(match, match["slots"], place, found))
    return tuple(found)


def _from_hostfile(path: Path) -> tuple[Host, ...]:
    """Read an Open MPI hostfile; a host without `slots=` offers all its devices."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: can't be read ({error.strerror}); give a file that you may read") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is no text; give a hostfile with one `host slots=4` a line") from error
    found: list[Host] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{path}:{number}"
        words = _EQUALS.sub("=", line.partition("#")[0]).split()
        if not words:
            continue
        match = _ENTRY.fullmatch(words[0])
        if not match or match["slots"] is not None:
            raise RequestError(f"{place}: {words[0]!r} is no host name; write for example `a slots=4`")
        settings = dict(_setting(word, place=place) for word in words[1:])
        found.append(_host(match, settings.get("slots"), place, found))
    if not found:
        raise RequestError(f"{path}: names no host; write one a line, for example `a slots=4`")
    return tuple(found)


def _setting(word: str, *, place: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    if key not in ("slots", *_LIMITS):
        raise RequestError(f"{place}: unknown word {word!r}; a line is a host and slots=N")
    return key, value


def _host(match: re.Match[str], text: str | None, place: str, before: list[Host]) -> Host:
    """A host known by name and slots alone: its engine is reached over ssh, this machine's own at its socket."""
    name, user, slots = match["name"], match["user"], None
    if text is not None:
        if not text.isascii() or not text.isdigit() or not text.strip("0"):
            raise RequestError(
                f"{place}: slots of {name} are {text!r}, which is no whole number of at least 1; correct it"
            )
        slots = bounded(f"{place}: slots of {name}", text, most=MOST_SLOTS)
    if any(other.name == name for other in before):
        raise RequestError(f"{place}: {name} is listed twice; name it once, with all its slots")
    if not _NAME.fullmatch(name):
        raise RequestError(f"{place}: {name!r} is no host name; letters, digits, '-', '_' and '.' make one")
    if user and not _NAME.fullmatch(user):
        raise RequestError(f"{place}: {user!r} is no user name; write for example bench@{name}")
    url = f"unix://{DEFAULT_SOCKET}" if name == "localhost" else f"ssh://{f'{user}@' if user else ''}{name}"
    return Host(name=name, endpoint=Endpoint(url=url), slots=slots)
