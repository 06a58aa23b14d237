"""The machines of a job as their list describes them: where their engines are, what the list claims of them, and what of it a node lacks. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from runner.core.errors import RequestError, nearest
from runner.core.frozen import Frozen
from runner.core.node import Gpu, Hca, Nic, Node
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
    """An engine's URL taken apart."""

    scheme: Literal["ssh", "unix", "tcp"]
    user: str | None = None
    host: str = ""  # as written, since names in an ssh configuration know upper and lower case; empty for unix://
    port: int | None = None
    socket: str = ""


def read_url(url: str) -> Address:
    """Take an engine's URL apart. Raises ValueError: no engine's URL; the message shows what one looks like."""
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
    """Where an engine is reached."""

    url: str
    tls: Tls | None = None
    ssh_config: Path | None = None  # for ssh://, what `ssh -F` gets; the user's own configuration when None

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
    """What the file says of a host's GPUs, all of one kind; None where it says nothing."""

    count: Annotated[int, Field(ge=0, le=MOST_SLOTS)]
    model: str | None = None
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    nvlinks: Annotated[int, Field(ge=0)] = 0


class Claims(Frozen):
    """What the list says of a host; None where it says nothing."""

    name: str
    slots: Parts | None = None  # devices of it that a job may use; all when None
    # Logical CPUs that it is said to have, for planning without contact. So are `memory_mib`, `gpus` and `driver`.
    cpus: Parts | None = None
    memory_mib: Annotated[int, Field(ge=1, le=MOST_OF_ALL)] | None = None
    gpus: Annotated[GpuClaim, _alone("count", int)] | None = None
    driver: str | None = None
    interfaces: Mapping[Role, Annotated[Interface, _alone("name", str)]] = {}
    # RDMA adapters to use, `mlx5_0` or with a port `mlx5_0:1`; all when empty.
    hcas: tuple[Annotated[str, AfterValidator(_check_hca)], ...] = ()


class Host(Claims):
    """One machine of the list."""

    endpoint: Endpoint


class Hosts(Frozen):
    """The machines that a job may run on, in the order of the list."""

    hosts: tuple[Host, ...]
    link: Link | None = None
    source: str


# Where the kernel of a node that is asked finds free ports too: the plan's are examples.
_PORTS: Final = tuple(range(40000, 40064))


def declared_node(host: Host) -> Node:
    """The node that a host would be if it has what the list claims; raises RequestError where that does not suffice to plan."""
    if host.cpus is None:
        raise RequestError(
            f"{host.name} was not asked what it has, and nothing says how many CPUs that is, so nothing can be planned for it; "
            "write a hosts.yaml with `cpus: N` for each host"
        )
    gpus = _gpus(host)
    return Node(
        name=host.name,
        cores=tuple(range(host.cpus)),
        cpu_quota=None,
        cpu_model=None,
        memory_mib=host.memory_mib or 0,
        gpus=gpus,
        gpu_reason=None if gpus else "its hosts file claims none",
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
            f"{host.name} was not asked and its hosts file claims {claim.count} GPUs without their compute_capability, which decides "
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
    """What the hosts file claims and the node, whose IPv4 addresses are `local`, does not have; each a sentence that names it."""
    nics = [nic.name for nic in node.nics]
    found = []
    for role, interface in host.interfaces.items():
        if interface.name not in nics:
            has = nearest(interface.name, nics)
            found.append(f"names {interface.name} for {role}, and it has no such interface; it has {has}")
        elif interface.address and interface.address not in local:
            has = ", ".join(local) or "none"
            found.append(
                f"gives {interface.name} the address {interface.address}, and it has no such address; it has {has}"
            )
    ports = [f"{hca.name}:{hca.port}" for hca in node.hcas]
    for name in host.hcas:
        if name not in {*ports, *(hca.name for hca in node.hcas)}:
            has = ", ".join(ports) or "none"
            found.append(f"names the adapter {name}, and it has none of that name; it has {has}")
    gpus, cores = len(node.gpus), len(node.cores)
    devices = max(gpus, cores)  # a slot is a GPU or a core, as the request has it
    why = f" ({node.gpu_reason})" if node.gpu_reason else ""
    claimed = host.gpus.count if host.gpus else 0
    counts = (
        (host.slots, devices, f"gives it {host.slots} slots, and it has {devices} devices; correct `slots`"),
        (claimed, gpus, f"claims {claimed} GPUs, and it has {gpus}{why}; correct `gpus`"),
        (host.cpus, cores, f"claims {host.cpus} cpus, and it has {cores}; correct `cpus`"),
    )
    found += [sentence for count, there, sentence in counts if count and count > there]
    return tuple(f"{host.name}: the hosts file {sentence}" for sentence in found)
