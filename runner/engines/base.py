"""The interface of every engine, and what engines share: users, container paths, line splitting.

An engine runs a `ContainerSpec` as its plan made it, and adds a label with its owner. The lease: each container's stdin stays open for as long
as the runner lives; `workloads/lease.py` inside ends the job when it closes. Engines that drive a command line combine a way and a box
(`command.py`). Inside a container, programs and data have the same paths under every engine.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from runner.core import dataset
from runner.core.container_spec import IMAGE_USER, ContainerSpec, Mount
from runner.core.frozen import Frozen
from runner.core.request import EngineName

GpuRequest = Literal["nvidia", "cdi"]


class EngineFacts(Frozen):
    """An engine's name, version and capabilities, as it reports them."""

    name: EngineName | Literal["slurm", "ssh"]
    available: bool
    reason: str | None = None
    version: str | None = None
    # How GPUs are requested: through the `nvidia` device driver, by CDI device names, or not at all (None).
    gpu_request: GpuRequest | None = None
    podman: str | None = None
    root_dir: str | None = None  # its image store, for the free-disk check

    @property
    def served_by(self) -> str | None:
        """The engine's version; Podman's name and version if Podman serves Docker's API."""
        return self.podman or self.version


class EngineError(Exception):
    """The engine refused a call, failed or no longer answers; the message has the engine's own words, if there are any."""


class NodeGoneError(EngineError):
    """A node has fallen silent and can no longer be reached."""


class EngineRefusedError(EngineError):
    """The engine answered a call with a refusal."""


class EngineSilentError(EngineError):
    """The engine, or the connection to it, did not answer."""


class Site(Frozen):
    """Paths inside an engine's environment."""

    python: str
    workloads: str
    data: str | None = None  # path of the data set, None for synthetic data

    def program_path(self, program: str) -> str:
        """The command for a program installed with the framework: next to the interpreter, or by name if Python is found on PATH."""
        folder, slash, _ = self.python.rpartition("/")
        return f"{folder}{slash}{program}"


class Line(NamedTuple):
    """A line that a container wrote; if not `whole`, a sign of life without text: the container has written, but ended no line yet."""

    stream: Literal["stdout", "stderr"]
    text: str
    whole: bool = True


class Container(Protocol):
    """A started container."""

    @property
    def name(self) -> str:
        """The name in its spec."""

    @property
    def identifier(self) -> str | None:
        """How the kernel identifies its processes: by an id in their cgroup path, or by `session:` and the session's number.

        None if unknown.
        """

    def lines(self) -> Iterator[Line]:
        """Yield every line as it is written, and signs of life between lines, until the container ends."""

    def wait(self) -> int:
        """Block until the container exits, and return its exit code; raises EngineError if the engine no longer knows it."""

    def send(self, line: bytes) -> None:
        """Send a line to the lease: an empty one as the runner's heartbeat, or the keys. Safe after the end."""

    def close_lease(self) -> None:
        """Close the lease without asking the engine, which may not answer; the job then ends on its own. Safe to call twice."""

    def stop(self) -> None:
        """End the container: first by its lease or SIGTERM, then by SIGKILL. Safe to call twice and after the end."""

    def remove(self) -> None:
        """Remove all remains of the container. Safe after any failure."""


class Surroundings(Protocol):
    """What a job finds in its container, or in its place."""

    @property
    def name(self) -> str:
        """The value of ENGINE that selects it."""

    def site(self, data: Path | None) -> Site:
        """Where launchers find programs and data."""

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """The mounts that the site's paths need."""

    def place(self, directory: Path) -> str:
        """The path inside of a directory that a tool writes to."""

    def user(self) -> str:
        """Numeric `uid:gid` that a job runs as; never root inside a container."""


class Describer(Surroundings, Protocol):
    """Describes an engine's containers and starts none: enough for launchers and dry runs."""

    def command_line(self, spec: ContainerSpec) -> str:
        """The shell command that would start the same container."""


class Engine(Describer, Protocol):
    """Starts containers on one host."""

    def facts(self) -> EngineFacts:
        """Ask the engine about itself; never raises."""

    def check(self, node: str) -> None:
        """Check that a node's engine answers; raises EngineError if it does not, NodeGoneError if it never will."""

    def start(self, spec: ContainerSpec) -> Container:
        """Create and start a container; raises EngineError if the engine fails to."""


@contextlib.contextmanager
def as_engine_error() -> Iterator[None]:
    """Convert errors of Docker's SDK and of its connection to an EngineError in the engine's own words."""
    from docker.errors import APIError, DockerException  # noqa: PLC0415 - loaded with the client
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException) as error:
        if isinstance(error, APIError):
            raise EngineRefusedError(str(error.explanation or error).strip()) from error
        raise EngineSilentError(str(error).strip()) from error


def job_user() -> str:
    """Numeric `uid:gid` of jobs: the runner's own, so that private programs and data stay readable; for root, the image's user."""
    uid = os.getuid()
    return f"{uid}:{os.getgid()}" if uid else IMAGE_USER


def grant_write(directory: Path, user: str) -> None:
    """Let a job write to a directory that the runner created; only root runs jobs as another user."""
    if os.getuid() == 0:
        os.chown(directory, *(int(part) for part in user.split(":")))


QUEUE_LENGTH: Final = 64
"""Lines, or reads of a stream, that a queue holds: a program that writes faster blocks, so memory stays bounded."""
LONGEST: Final = 2**20
"""Bytes of a line that are kept; the rest is cut."""
TRUNCATED: Final = f" [cut here: the line is longer than {LONGEST >> 20} MiB]"
# A carriage return ends a line too: a progress bar may write no newline for hours.
_END: Final = re.compile(rb"\r\n|\n|\r")


class Splitter:
    """Splits the bytes of one stream into lines, in whatever chunks they arrive."""

    def __init__(self, stream: Literal["stdout", "stderr"]) -> None:
        self._stream: Literal["stdout", "stderr"] = stream
        self._pieces: list[bytes] = []
        self._size = 0
        self._after_return = False

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that these bytes end; if they end none, one `Line` that is not whole, as a sign of life."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        *lines, partial = _END.split(data)
        for text in lines:
            self._append(text)
            yield self._take_line()
        self._append(partial)
        if not lines:
            yield Line(stream=self._stream, text="", whole=False)

    def close(self) -> Iterator[Line]:
        """Yield the last line, if it is unterminated."""
        if self._size:
            yield self._take_line()

    def _append(self, text: bytes) -> None:
        if text and self._size <= LONGEST:
            self._pieces.append(text[: LONGEST + 1 - self._size])
        self._size += len(text)

    def _take_line(self) -> Line:
        text = b"".join(self._pieces)[:LONGEST].decode(errors="replace")
        if self._size > LONGEST:
            text += TRUNCATED
        self._pieces, self._size = [], 0
        return Line(stream=self._stream, text=text)


WORKLOADS: Final = "/dlscale/workloads"
DATA: Final = "/dlscale/data"
OUT: Final = "/dlscale/out"


class Inside:
    """The paths of a container.

    Attributes:
        workloads: the training programs: a directory of this machine, or the named volume that holds them on other machines.
        extra_mounts: further mounts of every container.
    """

    def __init__(self, workloads: Path | str, *, extra_mounts: tuple[Mount, ...] = ()) -> None:
        self.workloads = workloads
        self.extra_mounts = extra_mounts

    def site(self, data: Path | None) -> Site:
        """Programs and data have fixed paths."""
        return Site(python="python3", workloads=WORKLOADS, data=data and _data_target(data))

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """Programs and data, read-only, then `extra_mounts`; packed data with the directory around it, which also holds its index."""
        found = [Mount(source=str(self.workloads), target=WORKLOADS)]
        if data:
            found.append(Mount(source=str(dataset.mount_source(data)), target=DATA))
        return (*found, *self.extra_mounts)

    def place(self, directory: Path) -> str:
        """One fixed path: a tool writes to one directory."""
        del directory
        return OUT

    def user(self) -> str:
        """`job_user` if programs are read from this machine; the image's user on other machines."""
        return job_user() if isinstance(self.workloads, Path) else IMAGE_USER


def _data_target(data: Path) -> str:
    """Path of a data set inside: a folder at the fixed path, packed data under its own name below it."""
    return DATA if dataset.mount_source(data) == data else f"{DATA}/{data.name}"
