"""From an endpoint of the list to a client of that node's engine, or one sentence on why there is none.

ssh:// takes one `ssh -N -L` per node: every connection of the client (a job has several, and one of them is its lease) is a channel of
it. The tunnel ends with the runner, and with it the leases of the node's jobs.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from runner.cluster.hosts.model import Endpoint, Host
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.engines import docker
from runner.engines.base import EngineError, EngineRefusedError, EngineSilentError, as_engine_error
from runner.engines.images import run_confined
from runner.engines.process import CommandError, Tunnel, last_line, open_tunnel
from runner.engines.ways import SSH
from runner.images.catalog import load_images
from runner.images.versions import BaseSpec

BASE: Final = "bookworm"

_MAX_FOLDER: Final = 70  # characters; a socket's whole path may have 107 (unix(7))
_LOGIN_S: Final = 30.0  # ssh's own limit for the connection is 10 s; slow name services on the other side come on top

_Table: TypeAlias = tuple[tuple[str, str, str], ...]
_UP: Final = "check that it is up and that no firewall is in between"
# Patterns of OpenSSH's output, their meaning, and the next step; the first match wins. `{try_it}` is the command that reproduces the error.
_SSH: Final[_Table] = (
    ("lease: ssh:", "there is no ssh on this machine", "install it (apt-get install openssh-client)"),
    (
        "IDENTIFICATION HAS CHANGED",
        "its host key has changed",
        "find out why, then trust it: {try_it}",
    ),
    ("Host key verification failed", "its host key is unknown here", "check it and accept it once: {try_it}"),
    ("Permission denied", "it does not let this user in without a password", "set up an ssh key for it: {try_it}"),
    ("Too many authentication", "it was offered too many keys", "name the right one in ssh's configuration: {try_it}"),
    ("Connection refused", "no sshd listens there", "start it, or correct the port in the hosts file"),
    ("Could not resolve hostname", "its name does not resolve", "correct the hosts file, or add it to /etc/hosts"),
    ("timed out", "it does not answer", f"{_UP}: {{try_it}}"),
    ("No route to host", "there is no route to it", "check that it is up and on the same network: {try_it}"),
    ("Network is unreachable", "there is no route to its network", "check that this machine's own interface is up"),
    ("Can't open user config file", "ssh's configuration is missing", "correct `ssh_config` in the hosts file"),
    ("Bad configuration option", "ssh can't read its configuration", "correct it: {try_it}"),
    ("no answer after", "ssh got no answer", "see what it waits for: {try_it}"),
)
# ssh's output when the connection stands, but the socket at its far end can't be reached.
_CHANNEL: Final[_Table] = (
    ("administratively prohibited", "its sshd forwards no sockets", "allow it there: AllowStreamLocalForwarding yes"),
    (
        "open failed",
        "no engine listens at {socket} there, or its user may not connect",
        "start dockerd, and add the user to group docker",
    ),
)
# Errors of the operating system and of TLS inside the SDK's exceptions.
_DIRECT: Final[_Table] = (
    ("FileNotFoundError", "its socket does not exist", "start its engine, or correct the path in the hosts file"),
    ("PermissionError", "this user may not use its socket", "add yourself to the group docker"),
    ("ConnectionRefusedError", "nothing listens there", "start its engine"),
    ("Connection refused", "nothing listens there", "start its engine, or correct the port in the hosts file"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not signed by the CA in `ca`",
        "correct `tls` in the hosts file",
    ),
    ("ALERT_UNKNOWN_CA|CERTIFICATE_REQUIRED", "it does not accept our certificate", "correct `tls` in the hosts file"),
    ("doesn't match", "its certificate is for another name", "write the certificate's name in `engine`"),
    ("SSL", "its engine and this machine do not agree on TLS", "correct `tls` and the port in the hosts file"),
    ("Name or service not known", "its name does not resolve", "correct the hosts file, or add it to /etc/hosts"),
    ("No route to host", "there is no route to it", "check that it is up and on the same network"),
    ("unreachable", "there is no route to its network", "check that this machine's own interface is up"),
    ("connect timeout", "it does not answer", _UP),
    ("timed out", "its engine accepts the connection but does not answer", "see dockerd's log there"),
    ("RemoteDisconnected|Connection reset", "its engine closed the connection", "see dockerd's log there"),
)


class Connection:
    """A client of one node's engine, and the tunnel to it if there is one."""

    def __init__(self, host: Host, client: docker.Client, *, tunnel: Tunnel | None, undo: contextlib.ExitStack) -> None:
        self.host = host
        self.client = client
        self._tunnel = tunnel
        self._undo = undo

    @property
    def lost(self) -> str | None:
        """Why the tunnel has ended, in ssh's own words; None while it stands, or if there is none."""
        if self._tunnel is None or not self._tunnel.ended:
            return None
        return last_line(self._tunnel.stderr) or "ssh has ended"

    def sentence(self, error: EngineError) -> str:
        """An engine's error as one sentence that names the node."""
        if self.lost:
            return f"{self.host.name}: the connection to it is lost ({self.lost}); check that it is up and connected"
        if isinstance(error, EngineRefusedError):
            return f"{self.host.name}: its engine refuses ({error}); see dockerd's log there"
        return engine_sentence(self.host, str(error), stderr=self._tunnel.stderr if self._tunnel else "")

    @property
    def place(self) -> str:
        """Where its engine answers."""
        return self.host.endpoint.url

    def ask(self, source: str, *arguments: str, patience_s: int) -> str:
        """The output there of a program in Python, in a container of the suite's base with the host's network and no capabilities."""
        with engine_errors(self), self.patience(patience_s):
            return run_confined(self.client, base_image().reference, ("python3", "-c", source, *arguments))

    @contextlib.contextmanager
    def patience(self, seconds: int) -> Iterator[None]:
        """Set the timeout of calls to the engine within the block."""
        api = self.client.api
        previous_s, api.timeout = api.timeout, seconds
        try:
            yield
        finally:
            api.timeout = previous_s

    def close(self) -> None:
        """Close the client and its tunnel. Safe to call twice."""
        self._undo.close()


def base_image() -> BaseSpec:
    """The image of containers that inspect other machines: Python, and nothing superfluous."""
    return load_images(SUITE_ROOT).base(BASE)


def connect(host: Host) -> Connection:
    """Connect to a node's engine; raises RequestError."""
    with contextlib.ExitStack() as undo:
        tunnel = None
        if host.endpoint.address.scheme == "ssh":
            tunnel = _tunnel(host, undo)
            undo.callback(tunnel.close)
        url = f"unix://{tunnel.socket}" if tunnel else host.endpoint.url
        client = _client(host, url, stderr=(lambda: tunnel.stderr) if tunnel else str)
        undo.callback(client.close)
        return Connection(host, client, tunnel=tunnel, undo=undo.pop_all())


def ssh_argv(endpoint: Endpoint, *, socket: Path) -> tuple[str, ...]:
    """The command line of a tunnel to an ssh:// endpoint, whose near end is `socket`."""
    return (
        *("ssh", "-nNTax"),
        *SSH,
        *("-o", "ExitOnForwardFailure=yes"),
        *("-L", f"{socket}:{endpoint.address.socket}"),
        *_destination(endpoint),
    )


def login(host: Host) -> tuple[str, ...]:
    """The arguments of `ssh` that log in to a host. Raises RequestError if its engine is not reached over ssh."""
    if host.endpoint.address.scheme != "ssh":
        raise RequestError(
            f"{host.name}: jobs outside Docker reach hosts over ssh, and its engine is {host.endpoint.url}; write "
            f"`engine: ssh://{host.name}` in the hosts file, or use ENGINE=docker"
        )
    _check_config(host)
    return _destination(host.endpoint)


def _check_config(host: Host) -> None:
    """Check that a host's ssh configuration exists; raises RequestError."""
    config = host.endpoint.ssh_config
    if config and not config.is_file():
        raise RequestError(f"{host.name}: {config} does not exist; correct `ssh_config` in the hosts file")


def _destination(endpoint: Endpoint) -> tuple[str, ...]:
    address = endpoint.address
    config = ("-F", str(endpoint.ssh_config)) if endpoint.ssh_config else ()
    port = ("-p", str(address.port)) if address.port else ()
    host = address.host.strip("[]")
    return (*config, *port, "--", f"{address.user}@{host}" if address.user else host)


def ssh_sentence(host: Host, stderr: str) -> str:
    """Why ssh failed, from its output."""
    try_it = f"`{shlex.join(('ssh', *_destination(host.endpoint), 'true'))}`"
    last = last_line(stderr)
    cause = _explain(_SSH, stderr, last, try_it=try_it)
    cause = cause or f"ssh fails ({last or 'without output'}); try it by hand: {try_it}"
    return f"{host.name}: {cause}"


def engine_sentence(host: Host, error: str, *, stderr: str) -> str:
    """Why an engine does not answer, from the SDK's exception and the output of the ssh in between, if any."""
    url = host.endpoint.url
    channel = next((line.strip() for line in reversed(stderr.splitlines()) if "open failed" in line), "")
    cause = _explain(_CHANNEL, channel, channel, socket=host.endpoint.address.socket) or _explain(_DIRECT, error, url)
    cause = cause or f"its engine does not answer at {url} ({error}); see dockerd's log there"
    return f"{host.name}: {cause}"


def _explain(table: _Table, text: str, quoted: str, **names: str) -> str | None:
    """The first row that matches, as the end of a sentence; None if none does."""
    for pattern, meaning, step in table:
        if re.search(pattern, text):
            return f"{meaning.format(**names)} ({quoted}); {step.format(**names)}"
    return None


def _tunnel(host: Host, undo: contextlib.ExitStack) -> Tunnel:
    _check_config(host)
    fits = len(tempfile.gettempdir()) <= _MAX_FOLDER
    folder = Path(tempfile.mkdtemp(prefix="dlscale-", dir=None if fits else "/tmp"))  # noqa: S108 - mkdtemp makes it private
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    socket = folder / "engine.sock"
    try:
        return open_tunnel(ssh_argv(host.endpoint, socket=socket), socket=socket, timeout_s=_LOGIN_S)
    except CommandError as error:
        raise RequestError(ssh_sentence(host, error.stderr)) from error


def _client(host: Host, url: str, *, stderr: Callable[[], str]) -> docker.Client:
    tls = host.endpoint.tls
    files = (tls.ca, tls.cert, tls.key) if tls else None
    for path in files or ():
        if not path.is_file():
            raise RequestError(f"{host.name}: {path} does not exist; correct `tls` in the hosts file")
    try:
        return docker.connect_to(url, tls=files)
    except EngineError as error:
        raise RequestError(engine_sentence(host, str(error), stderr=stderr())) from error


@contextlib.contextmanager
def engine_errors(connection: Connection) -> Iterator[None]:
    """Convert an engine's errors to a RequestError that names its node."""
    try:
        with as_engine_error():
            yield
    except (EngineRefusedError, EngineSilentError) as error:
        raise RequestError(connection.sentence(error)) from error
    except EngineError as error:
        raise RequestError(f"{connection.host.name}: {error}; see `dlscale doctor --hosts=...`") from error
