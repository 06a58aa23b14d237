"""What every engine offers: facts about itself, and containers that end when the runner does. And what engines share: users, paths and lines.

An engine is handed a `ContainerSpec` and adds nothing to it but whose it is. The lease: each container's standard input stays open for as
long as the runner lives; `workloads/lease.py` inside ends the job when it closes. Engines that are a command
line are a way and a box around it (`command.py`). Inside a container programs and data are at the same places whichever engine makes it.
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
    """What an engine says of itself."""

    name: EngineName | Literal["slurm", "ssh"]
    available: bool
    reason: str | None = None
    version: str | None = None
    # How GPUs are asked for: the `nvidia` device driver, CDI device names, or not at all (None).
    gpu_request: GpuRequest | None = None
    podman: str | None = None
    root_dir: str | None = None  # where it keeps images, for the free-disk check

    @property
    def served_by(self) -> str | None:
        """Its version, with Podman's name where that answers in Docker's place."""
        return self.podman or self.version


class EngineError(Exception):
    """The engine refused something or does not answer any more; the message is the engine's own."""


class NodeGoneError(EngineError):
    """Nothing is heard of a node any more, and it can't be reached."""


class EngineRefusedError(EngineError):
    """The engine answered a call with a refusal."""


class EngineSilentError(EngineError):
    """The engine, or the connection to it, gave no answer."""


class Site(Frozen):
    """Where a program finds things inside an engine's environment."""

    python: str
    workloads: str
    data: str | None = None  # where the data set appears, None for synthetic data

    def beside_python(self, program: str) -> str:
        """A program that was installed with the framework: in the interpreter's own directory, or on PATH with it."""
        folder, slash, _ = self.python.rpartition("/")
        return f"{folder}{slash}{program}"


class Line(NamedTuple):
    """One line that a container wrote; not `whole` when it wrote something, and no end of a line yet."""

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
        """What the kernel's view of a process tells it by: the engine's id, in the control group's path, or `session:` and its number.

        None where nobody knows.
        """

    def lines(self) -> Iterator[Line]:
        """Yield every line as it is written, until the container ends."""

    def wait(self) -> int:
        """Block until the container has ended and return its exit code; raises EngineError where the engine can't tell any more."""

    def tell(self, line: bytes) -> None:
        """Hand something to the lease: an empty line that the runner is there, or keys. Safe after the end."""

    def let_go(self) -> None:
        """Give the lease up without asking the engine, which does not answer; the job ends by itself. Safe to call twice."""

    def stop(self) -> None:
        """End it: the lease is let go, then terminate, then kill. Safe to call twice and after the end."""

    def remove(self) -> None:
        """Remove what is left of it. Safe after any failure."""


class Describer(Protocol):
    """Knows what containers look like in an engine, and starts none: what launchers and dry runs need."""

    @property
    def name(self) -> str:
        """The value of ENGINE that names it."""

    def site(self, data: Path | None) -> Site:
        """Tell launchers where programs and data are found."""

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """The directories of the host that make the site's paths true."""

    def place(self, directory: Path) -> str:
        """Where a directory that a tool writes to appears."""

    def user(self) -> str:
        """Numeric `uid:gid` that a job runs as; never root inside a container."""

    def command_line(self, spec: ContainerSpec) -> str:
        """Print the spec as the shell command that would start the same thing."""


class Engine(Describer, Protocol):
    """Starts containers on one host."""

    def facts(self) -> EngineFacts:
        """Ask the engine about itself; never raises."""

    def check(self, node: str) -> None:
        """Ask the engine of a node for a sign of life; raises EngineError when none comes, NodeGoneError when none will."""

    def start(self, spec: ContainerSpec) -> Container:
        """Create and start a container; raises EngineError where the engine would not."""


@contextlib.contextmanager
def as_engine_error() -> Iterator[None]:
    """Turn the SDK's errors, and those of the connection below it, into an EngineError with the engine's own words."""
    from docker.errors import APIError, DockerException  # noqa: PLC0415 - loaded with the client
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException) as error:
        if isinstance(error, APIError):
            raise EngineRefusedError(str(error.explanation or error).strip()) from error
        raise EngineSilentError(str(error).strip()) from error


def job_user() -> str:
    """Numeric `uid:gid`: the runner's own, so that private programs and data stay readable; the image's user for root."""
    uid = os.getuid()
    return f"{uid}:{os.getgid()}" if uid else IMAGE_USER


def give(directory: Path, user: str) -> None:
    """Let a job write to a directory that the runner made: only root runs jobs as somebody else."""
    if os.getuid() == 0:
        os.chown(directory, *(int(part) for part in user.split(":")))


AHEAD: Final = 64
"""Lines, or reads of a stream, that may wait to be taken in: a program that writes faster waits, and nobody's memory fills."""
LONGEST: Final = 2**20
"""Bytes of a line that are kept."""
CUT: Final = f" [cut here: the line is longer than {LONGEST >> 20} MiB]"
# A carriage return ends a line too: a progress bar writes nothing else for hours.
_END: Final = re.compile(rb"\r\n|\n|\r")


class Splitter:
    """Turns the bytes of one stream into lines, whatever pieces they come in."""

    def __init__(self, stream: Literal["stdout", "stderr"]) -> None:
        self._stream: Literal["stdout", "stderr"] = stream
        self._begun: list[bytes] = []
        self._size = 0
        self._returned = False

    def feed(self, data: bytes) -> Iterator[Line]:
        """Take in some bytes: the lines that they end, and where they end none a `Line` that is not whole, as a sign of life."""
        if self._returned and data.startswith(b"\n"):
            data = data[1:]
        self._returned = data.endswith(b"\r")
        *ended, rest = _END.split(data)
        for text in ended:
            self._keep(text)
            yield self._whole()
        self._keep(rest)
        if not ended:
            yield Line(stream=self._stream, text="", whole=False)

    def close(self) -> Iterator[Line]:
        """Give what was begun and never ended."""
        if self._size:
            yield self._whole()

    def _keep(self, text: bytes) -> None:
        if text and self._size <= LONGEST:
            self._begun.append(text[: LONGEST + 1 - self._size])
        self._size += len(text)

    def _whole(self) -> Line:
        text = b"".join(self._begun)[:LONGEST].decode(errors="replace")
        if self._size > LONGEST:
            text += CUT
        self._begun, self._size = [], 0
        return Line(stream=self._stream, text=text)


WORKLOADS: Final = "/dlscale/workloads"
DATA: Final = "/dlscale/data"
OUT: Final = "/dlscale/out"


class Inside:
    """The paths of a container.

    Attributes:
        workloads: the training programs: a directory of this machine, or the named volume that other machines have them in.
        beside: what else the containers are shown.
    """

    def __init__(self, workloads: Path | str, *, beside: tuple[Mount, ...] = ()) -> None:
        self.workloads = workloads
        self.beside = beside

    def site(self, data: Path | None) -> Site:
        """Programs and data are bind-mounted at fixed places."""
        return Site(python="python3", workloads=WORKLOADS, data=data and _data_target(data))

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """Programs and data, read-only, and what else there is; packed data with the directory that it lies in, where its index is."""
        found = [Mount(source=str(self.workloads), target=WORKLOADS)]
        if data:
            found.append(Mount(source=str(dataset.place(data)), target=DATA))
        return (*found, *self.beside)

    def place(self, directory: Path) -> str:
        """One fixed place: a tool writes to one directory."""
        del directory
        return OUT

    def user(self) -> str:
        """The runner's own user, so that private programs and data stay readable; the image's for root, and on other machines."""
        return job_user() if isinstance(self.workloads, Path) else IMAGE_USER


def _data_target(data: Path) -> str:
    """Where a data set appears: a folder at the fixed place, packed data under its own name in it."""
    return DATA if dataset.place(data) == data else f"{DATA}/{data.name}"
