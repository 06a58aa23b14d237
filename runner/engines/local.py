"""Engines `venv` and `host`: jobs as processes of this machine, in a locked environment of the suite's own or in the machine's own Python.

The contract is a container's: the same argv under the same lease, the same labels in the record. What they can't give is the
isolation: the job sees the host's files and network, and the record says so.
"""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Literal

from runner.core.container_spec import ContainerSpec, Mount
from runner.core.record import SESSION
from runner.engines.base import AHEAD, Container, EngineError, EngineFacts, Line, Site, Splitter

STOP_GRACE_S: Final = 8.0
READ_BYTES: Final = 2**16
# What a job may see of the runner's environment: where programs, libraries and GPUs are, and nothing personal.
PASSED: Final = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "LANG", "TZ")


class LocalEngine:
    """Process trees of a Python that has the framework, whosever it is; `version` is its own where it may not be the runner's."""

    def __init__(
        self,
        python: Path | None,
        workloads: Path,
        *,
        name: Literal["venv", "host"] = "venv",
        version: str | None = None,
    ) -> None:
        self.name = name
        self.python = python
        self.workloads = workloads
        self.version = version or platform.python_version()

    def facts(self) -> EngineFacts:
        """Always there: it needs nothing but Python."""
        return EngineFacts(name=self.name, available=True, version=self.version)

    def site(self, data: Path | None) -> Site:
        """The host's own paths."""
        python = str(self.python) if self.python else "python3"
        return Site(python=python, workloads=str(self.workloads), data=str(data) if data else None)

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """None: the host's paths are the job's."""
        del data
        return ()

    def place(self, directory: Path) -> str:
        """The directory itself."""
        return str(directory)

    def user(self) -> str:
        """The runner's own user: without a container there is no other."""
        return f"{os.getuid()}:{os.getgid()}"

    def check(self) -> None:
        """Nothing to ask: the processes are this one's own."""

    def start(self, spec: ContainerSpec) -> Container:
        """Start the process tree."""
        return start_process(spec.name, arguments(spec), {**passed(), **environment(spec)})

    def command_line(self, spec: ContainerSpec) -> str:
        """The shell command that starts the same process tree."""
        variables = [f"{key}={value}" for key, value in sorted(environment(spec).items())]
        return shlex.join(("env", *variables, *arguments(spec)))


def start_process(name: str, argv: Sequence[str], env: Mapping[str, str]) -> LocalContainer:
    """Start a process tree with a pipe as its lease: how an engine that is a command line starts its containers; raises EngineError."""
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the runner alone, which then ends the job in order
        )
    except OSError as error:
        raise EngineError(f"{argv[0]}: {error.strerror}") from error
    return LocalContainer(name, process)


class LocalContainer:
    """A started process tree; its first process is the lease holder."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self._process = process

    @property
    def identifier(self) -> str:
        """Number of the session that it leads."""
        return f"{SESSION}{self._process.pid}"

    def lines(self) -> Iterator[Line]:
        """Yield lines of both streams as they arrive."""
        found: queue.Queue[tuple[Splitter, bytes]] = queue.Queue(maxsize=AHEAD)
        for pipe, splitter in ((self._process.stdout, Splitter("stdout")), (self._process.stderr, Splitter("stderr"))):
            threading.Thread(target=_pump, args=(pipe, splitter, found), daemon=True).start()
        open_streams = 2
        while open_streams:
            splitter, data = found.get()
            if data:
                yield from splitter.feed(data)
            else:
                open_streams -= 1
                yield from splitter.close()

    def wait(self) -> int:
        """Exit code, 128 + signal number if a signal ended it."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def tell(self, line: bytes) -> None:
        """Write to the lease holder."""
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin:
                os.write(self._process.stdin.fileno(), line)

    def let_go(self) -> None:
        """Close the lease holder's standard input."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def stop(self) -> None:
        """Terminate; the lease holder ends its tree. Kill the session if even that hangs."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)

    def remove(self) -> None:
        """Let the lease go."""
        self.stop()
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


def passed() -> dict[str, str]:
    """What every job has of the runner's environment; a look at a Python that is to run jobs needs the same."""
    return {name: os.environ[name] for name in PASSED if name in os.environ}


def arguments(spec: ContainerSpec) -> tuple[str, ...]:
    """The argv, bound to the spec's cores."""
    return ("taskset", "--cpu-list", ",".join(map(str, spec.cpus)), *spec.argv) if spec.cpus else spec.argv


def environment(spec: ContainerSpec) -> dict[str, str]:
    """The spec's variables; GPUs are given by the CUDA runtime's own variable where there is no container."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.gpus))} if spec.gpus else {}
    return {**spec.env, **gpus}


def _pump(pipe: IO[bytes], splitter: Splitter, found: queue.Queue[tuple[Splitter, bytes]]) -> None:
    """Hand over each read of a stream; an empty one is its end."""
    while data := os.read(pipe.fileno(), READ_BYTES):
        found.put((splitter, data))
    found.put((splitter, b""))
