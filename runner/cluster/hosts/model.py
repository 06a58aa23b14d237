"""The machines of a job as their list describes them: where their engines are, and what the list claims that they have."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from runner.core.frozen import Frozen
from runner.core.parsing import MOST_OF_ALL, MOST_SLOTS
from runner.core.wire import Link

Role = Literal["ethernet", "infiniband", "roce"]

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_NETLOC: Final = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d+))?",
    re.ASCII,
)
_LAST_PORT: Final = 65535
_HCA: Final = re.compile(r"[A-Za-z0-9_.-]+(:[1-9]\d*)?", re.ASCII)
_INTERFACE_LENGTH: Final = 15  # IFNAMSIZ of the kernel, less its closing zero

Parts = Annotated[int, Field(ge=1, le=MOST_SLOTS)]


@dataclass(frozen=True, kw_only=True)
class Address:
    """An engine's URL taken apart.

    Attributes:
        host: as written, since names in an ssh configuration know upper and lower case; empty for unix://.
        socket: path of the engine's socket on its own machine; empty for tcp://.
    """

    scheme: Literal["ssh", "unix", "tcp"]
    user: str | None = None
    host: str = ""
    port: int | None = None
    socket: str = ""


def read_url(url: str) -> Address:
    """Take an engine's URL apart.

    Raises:
        ValueError: no engine's URL; the message shows what one looks like.
    """
    forms = "an engine is ssh://user@host, unix:///path/docker.sock or tcp://host:2376"
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise ValueError(forms)
    if parts.scheme == "unix" and not parts.netloc and len(parts.path) > 1:
        return Address(scheme="unix", socket=parts.path)
    match = _NETLOC.fullmatch(parts.netloc)
    if not match or (match["port"] and not 0 < int(match["port"]) <= _LAST_PORT):
        raise ValueError(forms)
    port = int(match["port"]) if match["port"] else None
    path = parts.path.rstrip("/")
    if parts.scheme == "ssh":
        return Address(scheme="ssh", user=match["user"], host=match["host"], port=port, socket=path or DEFAULT_SOCKET)
    if parts.scheme == "tcp" and port and not path and not match["user"]:
        return Address(scheme="tcp", host=match["host"], port=port)
    raise ValueError(forms)


class Tls(Frozen):
    """Certificates for an engine behind tcp://: paths of PEM files; which authority signed the engine's, and who we are."""

    ca: Path
    cert: Path
    key: Path

    def relative_to(self, folder: Path) -> Tls:
        """The same files, named from `folder` on."""
        return Tls(ca=folder / self.ca, cert=folder / self.cert, key=folder / self.key)


class Endpoint(Frozen):
    """Where an engine is reached.

    Attributes:
        url: ssh://[user@]host[:port][/path/of/docker.sock], unix:///path/of/docker.sock, or tcp://host:port.
        tls: for tcp:// only.
        ssh_config: for ssh://, what `ssh -F` gets; the user's own configuration when None.
    """

    url: str
    tls: Tls | None = None
    ssh_config: Path | None = None

    @property
    def address(self) -> Address:
        """The URL taken apart."""
        return read_url(self.url)


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


def _alone(key: str, kind: type) -> BeforeValidator:
    """A value of this kind alone is short for its one key: `gpus: 4` for `gpus: {count: 4}`."""
    return BeforeValidator(lambda value: {key: value} if type(value) is kind else value)


class Interface(Frozen):
    """A network interface by its name on the node, and its IPv4 address if the file says it."""

    name: Annotated[str, AfterValidator(_check_interface)]
    address: Annotated[str, AfterValidator(_check_address)] | None = None


class GpuClaim(Frozen):
    """What the file says of a host's GPUs, all of one kind; None where it says nothing.

    Attributes:
        memory_mib: of each.
        compute_capability: "6.0"
        nvlinks: NVLink connections of each.
    """

    count: Annotated[int, Field(ge=0, le=MOST_SLOTS)]
    model: str | None = None
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    nvlinks: Annotated[int, Field(ge=0)] = 0


class Claims(Frozen):
    """What the list says of a host; None where it says nothing.

    Attributes:
        slots: devices of it that a job may use; all when None.
        cpus: logical CPUs that it is said to have, for planning without contact. So are `memory_mib`, `gpus` and `driver`.
        interfaces: by the role that INTERCONNECT asks for.
        hcas: RDMA adapters to use, `mlx5_0` or with a port `mlx5_0:1`; all when empty.
    """

    name: str
    slots: Parts | None = None
    cpus: Parts | None = None
    memory_mib: Annotated[int, Field(ge=1, le=MOST_OF_ALL)] | None = None
    gpus: Annotated[GpuClaim, _alone("count", int)] | None = None
    driver: str | None = None
    interfaces: Mapping[Role, Annotated[Interface, _alone("name", str)]] = {}
    hcas: tuple[Annotated[str, AfterValidator(_check_hca)], ...] = ()


class Host(Claims):
    """One machine of the list."""

    endpoint: Endpoint


class Hosts(Frozen):
    """The machines that a job may run on, in the order of the list.

    Attributes:
        link: what their wires are held to, if something holds them.
        source: what the user typed: a file's path or the list itself.
    """

    hosts: tuple[Host, ...]
    link: Link | None = None
    source: str
