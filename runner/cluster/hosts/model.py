"""HOSTS: the machines that a job may run on, from a `hosts.yaml`, an Open MPI hostfile, or `a:4,b:4` on the command line.

Holds where their engines are, what the list claims about them, and which claims a node does not meet; only the survey contacts machines.
The order of the file is the order of the nodes; ranks rendezvous on the first.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runner.core import yamlfile
from runner.core.errors import RequestError, nearest
from runner.core.frozen import Frozen
from runner.core.node import Gpu, Hca, Nic, Node
from runner.core.parsing import MAX_NUMBER, MAX_SLOTS, bounded
from runner.core.request import SLURM
from runner.core.wire import Link, parse_delay, parse_rate

Role = Literal["ethernet", "infiniband", "roce"]

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_NETLOC: Final = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d+))?",
    re.ASCII,
)
_LAST_PORT: Final = 65535
_HCA: Final = re.compile(r"[A-Za-z0-9_.-]+(:[1-9]\d*)?", re.ASCII)
_INTERFACE: Final = re.compile(r"[^/\s]{1,15}")  # IFNAMSIZ of the kernel, less its terminating zero

Parts = Annotated[int, Field(ge=1, le=MAX_SLOTS)]


@dataclass(frozen=True, kw_only=True)
class Address:
    """An engine's URL, parsed."""

    scheme: Literal["ssh", "unix", "tcp"]
    user: str | None = None
    host: str = ""  # as written, since names in an ssh configuration are case-sensitive; empty for unix://
    port: int | None = None
    socket: str = ""


def read_url(url: str) -> Address:
    """Parse an engine's URL. Raises ValueError, which shows the valid forms."""
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
    """Certificates for a tcp:// engine, as paths of PEM files: the CA that signed the engine's, our own, and our key."""

    ca: Path
    cert: Path
    key: Path


class Endpoint(Frozen):
    """Where an engine is reached."""

    url: str
    tls: Tls | None = None
    ssh_config: Path | None = None  # for ssh://, the file for `ssh -F`; the user's own configuration when None

    @property
    def address(self) -> Address:
        """The URL, parsed."""
        return read_url(self.url)


def _match(pattern: re.Pattern[str], hint: str) -> AfterValidator:
    """Require a text that matches a pattern as a whole; `hint` describes a valid one."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(hint)
        return text

    return AfterValidator(check)


def _check_address(address: str) -> str:
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise ValueError("an IPv4 address is four numbers such as 10.1.0.1") from error


def _shorthand(key: str, kind: type) -> BeforeValidator:
    """Accept a bare value of this kind as shorthand for its one key: `gpus: 4` for `gpus: {count: 4}`."""
    return BeforeValidator(lambda value: {key: value} if type(value) is kind else value)


class Interface(Frozen):
    """A network interface by its name on the node, with its IPv4 address if the file gives it."""

    name: Annotated[
        str,
        _match(_INTERFACE, "an interface's name has 1 to 15 characters, no blank and no '/' (`ip link` lists them)"),
    ]
    address: Annotated[str, AfterValidator(_check_address)] | None = None


class GpuClaim(Frozen):
    """The file's claims about a host's GPUs, all of one model; None for what it does not state."""

    count: Annotated[int, Field(ge=0, le=MAX_SLOTS)]
    model: str | None = None
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    nvlinks: Annotated[int, Field(ge=0)] = 0


class Claims(Frozen):
    """The list's claims about a host; None for what it does not state."""

    name: str
    slots: Parts | None = None  # devices that a job may use there; all when None
    # Its logical CPUs, for planning without contact; so are `memory_mib`, `gpus` and `driver`.
    cpus: Parts | None = None
    memory_mib: Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None = None
    gpus: Annotated[GpuClaim, _shorthand("count", int)] | None = None
    driver: str | None = None
    interfaces: Mapping[Role, Annotated[Interface, _shorthand("name", str)]] = {}
    # RDMA adapters to use, `mlx5_0` or with a port `mlx5_0:1`; all when empty.
    hcas: tuple[
        Annotated[str, _match(_HCA, "an adapter is written mlx5_0, or with its port mlx5_0:1 (`ibstat` lists them)")],
        ...,
    ] = ()


class Host(Claims):
    """One machine of the list."""

    endpoint: Endpoint


class Hosts(Frozen):
    """The machines that a job may run on, in the order of the list."""

    hosts: tuple[Host, ...]
    link: Link | None = None
    source: str


# Examples for a plan without contact, from the range from which kernels assign free ports.
_PORTS: Final = tuple(range(40000, 40064))


def declared_node(host: Host) -> Node:
    """The node that a host would be with what the list claims; raises RequestError if the claims do not suffice to plan."""
    if host.cpus is None:
        raise RequestError(
            f"{host.name} was not contacted, and its CPUs are not listed, so nothing can be planned for it; "
            "write a hosts.yaml with `cpus: N` for each host"
        )
    gpus = _gpus(host)
    return Node(
        name=host.name,
        cores=tuple(range(host.cpus)),
        cpu_quota=None,
        cpu_model=None,
        memory_mib=host.memory_mib or 0,
        counts_energy=False,
        gpus=gpus,
        gpu_reason=None if gpus else "the hosts file claims none",
        nics=tuple(
            Nic(
                name=interface.name,
                state="up",
                speed_mbit=None,
                mtu=0,
                kind="infiniband" if role == "infiniband" else "ethernet",
                address=interface.address,
            )
            for role, interface in host.interfaces.items()
        ),
        hcas=tuple(_hca(name, host) for name in host.hcas),
        driver=host.driver,
        cuda_driver=None,
        ports=_PORTS,
    )


def _gpus(host: Host) -> tuple[Gpu, ...]:
    claim = host.gpus
    if not claim or not claim.count:
        return ()
    if claim.compute_capability is None:
        raise RequestError(
            f"{host.name} was not contacted, and the hosts file claims {claim.count} GPUs without their compute_capability, which decides "
            f'what runs on them; add for example `compute_capability: "6.0"`'
        )
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{host.name}-{index}",
            name=claim.model or "unnamed GPU",
            memory_mib=claim.memory_mib or 0,
            compute_capability=claim.compute_capability,
            nvlinks=claim.nvlinks,
        )
        for index in range(claim.count)
    )


def _hca(name: str, host: Host) -> Hca:
    adapter, _, port = name.partition(":")
    layer = "InfiniBand" if "infiniband" in host.interfaces or "roce" not in host.interfaces else "Ethernet"
    return Hca(name=adapter, port=int(port or 1), state="ACTIVE", link_layer=layer, rate="unknown")


def unmet(host: Claims, node: Node, *, local: tuple[str, ...]) -> tuple[str, ...]:
    """Claims of the hosts file that the node, with the IPv4 addresses `local`, does not meet; each a sentence that names it."""
    nics = [nic.name for nic in node.nics]
    found = []
    for role, interface in host.interfaces.items():
        if interface.name not in nics:
            has = nearest(interface.name, nics)
            found.append(f"names {interface.name} for {role}, which it lacks; it has {has}")
        elif interface.address and interface.address not in local:
            has = ", ".join(local) or "none"
            found.append(f"gives {interface.name} the address {interface.address}, which it lacks; it has {has}")
    ports = [f"{hca.name}:{hca.port}" for hca in node.hcas]
    for name in host.hcas:
        if name not in {*ports, *(hca.name for hca in node.hcas)}:
            has = ", ".join(ports) or "none"
            found.append(f"names the adapter {name}, which it lacks; it has {has}")
    gpus, cores = len(node.gpus), len(node.cores)
    devices = max(gpus, cores)  # a slot is a GPU or a core, depending on the request
    why = f" ({node.gpu_reason})" if node.gpu_reason else ""
    claimed = host.gpus.count if host.gpus else 0
    counts = (
        (host.slots, devices, f"gives it {host.slots} slots, and it has {devices} devices; correct `slots`"),
        (claimed, gpus, f"claims {claimed} GPUs, and it has {gpus}{why}; correct `gpus`"),
        (host.cpus, cores, f"claims {host.cpus} cpus, and it has {cores}; correct `cpus`"),
    )
    found += [sentence for count, actual, sentence in counts if count and count > actual]
    return tuple(f"{host.name}: the hosts file {sentence}" for sentence in found)


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def load_hosts(text: str) -> Hosts:
    """Read HOSTS: a path (`.yaml` and `.yml` as hosts.yaml, any other file as an Open MPI hostfile), or `a:4,b:4`.

    Raises RequestError, which names file and line.
    """
    if text == SLURM:
        raise RequestError(
            "HOSTS=slurm stands only for the nodes of the Slurm job that a run is in; see `sinfo` and `squeue`"
        )
    path = Path(text)
    is_yaml = path.suffix in (".yaml", ".yml")
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a list of many hosts is too long for a file name
        is_file = False
    if not is_file and (is_yaml or "/" in text):
        raise RequestError(
            f"HOSTS={path}: no such file; give a hosts.yaml, an Open MPI hostfile, or a list such as a:4,b:4"
        )
    if is_yaml:
        return _from_yaml(path)
    return Hosts(hosts=_from_hostfile(path) if is_file else _from_list(text), source=text)


def _from_yaml(path: Path) -> Hosts:
    file = yamlfile.load(path, _File, example="examples/c4130x4.yaml")
    index_of: dict[str, int] = {}
    for index, entry in enumerate(file.hosts):
        if entry.name in index_of:
            raise RequestError(
                f"{path}: hosts[{index_of[entry.name]}] and hosts[{index}] are both named {entry.name!r}; give each its own name"
            )
        index_of[entry.name] = index
    found = tuple(entry.host(path.parent.absolute(), file.ssh_config) for entry in file.hosts)
    link = file.link and Link(rate_mbit=file.link.rate, delay_ms=file.link.delay, emulated=file.link.emulated)
    return Hosts(hosts=found, link=link, source=str(path))


Name = Annotated[str, _match(_NAME, "a host's name is made of letters, digits, '-', '_' and '.'")]
Rate = Annotated[float, BeforeValidator(lambda value: parse_rate(str(value)))]
Delay = Annotated[float, BeforeValidator(lambda value: parse_delay(str(value)))]


class _Entry(Claims):
    """A host as written in the file."""

    name: Name
    engine: Annotated[str, AfterValidator(lambda url: read_url(url) and url)] | None = None
    tls: Tls | None = None

    @model_validator(mode="after")
    def _check_tls(self) -> _Entry:
        engine = read_url(self.engine or f"ssh://{self.name}")
        if self.tls and engine.scheme != "tcp":
            raise ValueError(f"tls is for tcp:// engines, and this one is {engine.scheme}://")
        if engine.scheme == "tcp" and not self.tls and engine.host not in ("localhost", "127.0.0.1"):
            raise ValueError(
                "tcp:// without tls gives everybody on the network root access there; add tls, or write ssh://"
            )
        return self

    def host(self, folder: Path, ssh_config: Path | None) -> Host:
        """The host, with its paths relative to the file's `folder`."""
        url = self.engine or f"ssh://{self.name}"
        endpoint = Endpoint(
            url=url,
            tls=self.tls and Tls(**{name: folder / path for name, path in self.tls}),
            ssh_config=folder / ssh_config if ssh_config and url.startswith("ssh://") else None,
        )
        return Host(endpoint=endpoint, **{field: getattr(self, field) for field in Claims.model_fields})


class _Link(Frozen):
    """The link as written in the file, in tc's units."""

    rate: Rate | None = None
    delay: Delay = 0.0
    emulated: bool = False


class _File(Frozen):
    """`hosts.yaml` as written."""

    ssh_config: Path | None = None
    link: _Link | None = None
    hosts: Annotated[tuple[_Entry, ...], Field(min_length=1)]


_ENTRY: Final = re.compile(r"(?:(?P<user>[^@\s:]+)@)?(?P<name>[^@\s:]+)(?::(?P<slots>.*))?")
_EQUALS: Final = re.compile(r"\s*=\s*")
# The others limit how many more processes than slots Open MPI starts; the suite never starts more.
_SETTINGS: Final = ("slots", "max_slots", "max-slots")


def _from_list(text: str) -> tuple[Host, ...]:
    """Read `a:4,b:4`; a host without a number offers all its devices."""
    found: list[Host] = []
    place = f"HOSTS={text}"
    for part in text.split(","):
        match = _ENTRY.fullmatch(part.strip())
        if not match:
            raise RequestError(f"{place}: {part.strip()!r} is not a host with its slots; write for example a:4,b:4")
        found.append(_host(match, match["slots"], place, found))
    return tuple(found)


def _from_hostfile(path: Path) -> tuple[Host, ...]:
    """Read an Open MPI hostfile; a host without `slots=` offers all its devices."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: can't be read ({error.strerror}); give a readable file") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is not a text file; give a hostfile with one `host slots=4` a line") from error
    found: list[Host] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{path}:{number}"
        words = _EQUALS.sub("=", line.partition("#")[0]).split()
        if not words:
            continue
        match = _ENTRY.fullmatch(words[0])
        if not match or match["slots"] is not None:
            raise RequestError(f"{place}: {words[0]!r} is not a host name; write for example `a slots=4`")
        settings = dict(word.partition("=")[::2] for word in words[1:])
        if unknown := next((word for word in words[1:] if word.partition("=")[0] not in _SETTINGS), None):
            raise RequestError(f"{place}: unknown setting {unknown!r}; a line is a host and slots=N")
        found.append(_host(match, settings.get("slots"), place, found))
    if not found:
        raise RequestError(f"{path}: lists no host; write one per line, for example `a slots=4`")
    return tuple(found)


def _host(match: re.Match[str], text: str | None, place: str, listed: list[Host]) -> Host:
    """A host known only by name and slots: its engine is reached over ssh, that of localhost at its socket."""
    name, user, slots = match["name"], match["user"], None
    if text is not None:
        if not text.isascii() or not text.isdigit() or not text.strip("0"):
            raise RequestError(f"{place}: slots of {name} are {text!r}, not a whole number of at least 1; correct it")
        slots = bounded(f"{place}: slots of {name}", text, maximum=MAX_SLOTS)
    if any(other.name == name for other in listed):
        raise RequestError(f"{place}: {name} is listed twice; name it once, with all its slots")
    if not _NAME.fullmatch(name):
        raise RequestError(f"{place}: {name!r} is not a host name; use letters, digits, '-', '_' and '.'")
    if user and not _NAME.fullmatch(user):
        raise RequestError(f"{place}: {user!r} is not a user name; write for example bench@{name}")
    url = f"unix://{DEFAULT_SOCKET}" if name == "localhost" else f"ssh://{f'{user}@' if user else ''}{name}"
    return Host(name=name, endpoint=Endpoint(url=url), slots=slots)
