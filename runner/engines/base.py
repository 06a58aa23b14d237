"""What every engine offers: facts about itself, and containers that end when the runner does.

An engine is handed a `ContainerSpec` and adds nothing to it but whose it is. The lease: each container's standard input stays open for as
long as the runner lives; `workloads/lease.py` inside ends the job when it closes. An engine that is a command line (`local.py`) makes an
argv of the spec and hands it to `start_process`, which gives the rest of `Container`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from runner.core.container_spec import ContainerSpec, Mount
from runner.core.frozen import Frozen

GpuRequest = Literal["nvidia", "cdi"]


class EngineFacts(Frozen):
    """What an engine says of itself.

    Attributes:
        name: `docker`, `venv` or `host`.
        available: whether it can run a job now.
        reason: why not, in words, when it can't.
        version: the engine's own version.
        gpu_request: how GPUs are asked for: the `nvidia` device driver, CDI device names, or not at all (None).
        podman: Podman by its version where that answers in Docker's place.
        root_dir: where it keeps images, for the free-disk check.
    """

    name: str
    available: bool
    reason: str | None = None
    version: str | None = None
    gpu_request: GpuRequest | None = None
    podman: str | None = None
    root_dir: str | None = None


class EngineError(Exception):
    """The engine refused something or does not answer any more; the message is the engine's own."""


class EngineRefusedError(EngineError):
    """The engine answered a call with a refusal."""


class EngineSilentError(EngineError):
    """The engine, or the connection to it, gave no answer."""


class Site(Frozen):
    """Where a program finds things inside an engine's environment.

    Attributes:
        python: the interpreter that has the framework.
        workloads: the directory of the training programs.
        data: where the data set appears, None for synthetic data.
    """

    python: str
    workloads: str
    data: str | None = None

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
    def identifier(self) -> str:
        """What the kernel's view of a process tells it by: the engine's id, in the control group's path, or `session:` and its number."""

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

    def check(self) -> None:
        """Ask the engine for a sign of life; raises EngineError when none comes."""

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
