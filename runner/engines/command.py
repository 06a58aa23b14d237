"""Engines that drive a command line: a way (`ways.py`) brings an argv to a node, and a box (`boxes.py`) surrounds the job there.

Each container is represented by its argv's process on this machine, which carries its output and, on stdin, its lease.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from runner.core.container_spec import SILENCE_S, ContainerSpec, Mount
from runner.core.request import EngineName
from runner.engines.base import QUEUE_LENGTH, Container, EngineError, EngineFacts, Line, NodeGoneError, Site, Splitter
from runner.engines.boxes import Box
from runner.engines.owner import signed
from runner.engines.process import CommandError, run
from runner.engines.ways import Way

STOP_GRACE_S: Final = 8.0
# Seconds to wait until others can join a container; after that, they fail with an error of their own.
UP_S: Final = 30.0
# Seconds allowed to reach a silent node again: a busy Slurm controller is slow.
REACH_S: Final = 20.0
READ_BYTES: Final = 2**16


class CommandEngine:
    """Containers of one box, reached in one way."""

    def __init__(self, way: Way, box: Box, *, version: str | None, last_output: dict[str, float] | None = None) -> None:
        """`last_output`: by node, the monotonic time of its last output; the engines of one run share it."""
        self.way, self.box, self.version = way, box, version
        self.last_output = {} if last_output is None else last_output

    @property
    def name(self) -> EngineName:
        """The value of ENGINE that selects it."""
        return self.box.name

    def facts(self) -> EngineFacts:
        """Always available: the engine was created for a box that was found, with its version."""
        return EngineFacts(name=self.name, available=True, version=self.version)

    def site(self, data: Path | None) -> Site:
        """The box's."""
        return self.box.site(data)

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """The box's."""
        return self.box.mounts(data)

    def place(self, directory: Path) -> str:
        """The box's."""
        return self.box.place(directory)

    def user(self) -> str:
        """The box's."""
        return self.box.user()

    def check(self, node: str) -> None:
        """Try to reach a node that has been silent for `SILENCE_S`, unless the way notices a lost node on its own; raises NodeGoneError."""
        now = time.monotonic()
        if self.way.notices_loss or now - self.last_output.setdefault(node, now) < SILENCE_S:
            return
        try:
            run(self.way.reach(node, ("true",)), env=self._env(), timeout_s=REACH_S)
        except CommandError as error:
            raise NodeGoneError(
                f"nothing was heard of it for {SILENCE_S:g} s, and it can't be reached anew: {error.last_line}"
            ) from error
        self._note_output(node)

    def _note_output(self, node: str) -> None:
        self.last_output[node] = time.monotonic()

    def _env(self) -> dict[str, str]:
        return inherited_env((*self.box.env_names, *self.way.env_names))

    def start(self, spec: ContainerSpec) -> Container:
        """Start the argv. If its box has a `ready` command, wait until that succeeds, the argv has exited, or `UP_S` has passed."""
        spec = spec.model_copy(update={"labels": signed(spec.labels)})
        env = self._env()
        ready, removal = (
            words and self.way.reach(spec.node, words) for words in (self.box.ready(spec), self.box.removal(spec))
        )
        # A box with a `ready` command (Podman) runs its processes in cgroups and sessions of its own, which the way does not know.
        on_output = functools.partial(self._note_output, spec.node)
        container = start_process(
            spec.name, self.argv(spec), way=self.way, env=env, removal=removal, known=not ready, on_output=on_output
        )
        container.send(self.box.start_signal(spec))
        deadline = time.monotonic() + UP_S
        while ready and not container.ended() and time.monotonic() < deadline:
            with contextlib.suppress(CommandError):
                run(ready, env=env, timeout_s=UP_S)
                break
        return container

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The way's argv, then the box's, then the job's."""
        return self.way.reach(spec.node, self.box.argv(spec))

    def command_line(self, spec: ContainerSpec) -> str:
        """The argv that is started, without its owner's label."""
        return shlex.join(self.argv(spec))


def start_process(
    name: str,
    argv: Sequence[str],
    *,
    way: Way,
    env: Mapping[str, str],
    removal: Sequence[str] = (),
    known: bool = True,
    on_output: Callable[[], None],
) -> ProcessContainer:
    """Start a process tree with a pipe as its lease; `removal` runs after a non-zero exit. Raises EngineError.

    `known`: the way can identify its processes. `on_output` is called each time the process writes something or closes an output stream.
    """
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
    identifier = way.identifier(process.pid) if known else None
    return ProcessContainer(name, process, way, removal=(removal, env), identifier=identifier, on_output=on_output)


class ProcessContainer:
    """A container, represented by the local process that leads to it; the first process at the far end holds the lease."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        way: Way,
        *,
        removal: tuple[Sequence[str], Mapping[str, str]],
        identifier: str | None,
        on_output: Callable[[], None],
    ) -> None:
        self.name = name
        self.identifier = identifier
        self._removal, self._env = removal
        self._process = process
        self._way = way
        self._on_output = on_output
        self._writing = threading.Lock()

    def lines(self) -> Iterator[Line]:
        """Yield lines of both streams as they arrive."""
        reads: queue.Queue[tuple[Splitter, bytes]] = queue.Queue(maxsize=QUEUE_LENGTH)
        for pipe, splitter in ((self._process.stdout, Splitter("stdout")), (self._process.stderr, Splitter("stderr"))):
            threading.Thread(target=_pump, args=(pipe, splitter, reads), daemon=True).start()
        open_streams = 2
        while open_streams:
            splitter, data = reads.get()
            self._on_output()
            if data:
                yield from splitter.feed(data)
            else:
                open_streams -= 1
                yield from splitter.close()

    def wait(self) -> int:
        """The exit code, or 128 + the signal number if a signal ended it."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def send(self, line: bytes) -> None:
        """Write to the lease holder's stdin."""
        with self._writing, contextlib.suppress(OSError, ValueError):
            if self._process.stdin:
                os.write(self._process.stdin.fileno(), line)

    def close_lease(self) -> None:
        """Close the lease holder's stdin."""
        with self._writing, contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def stop(self) -> None:
        """Close the lease, which ends the job; after the way's grace time, terminate the local process, and kill it if even that hangs."""
        if self.ended():
            return
        self.close_lease()
        if not self.ended(self._way.grace_s):
            self._process.terminate()
            if not self.ended(STOP_GRACE_S):
                os.killpg(self._process.pid, signal.SIGKILL)

    def remove(self) -> None:
        """Make sure that it has exited; after a failure or an early end, run the box's removal."""
        self.stop()
        self.close_lease()
        if self._process.wait() and self._removal:
            with contextlib.suppress(CommandError):
                run(self._removal, env=self._env, timeout_s=UP_S)

    def ended(self, patience_s: float = 0.0) -> bool:
        """Whether its process exits within `patience_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
            return True
        return False


def inherited_env(names: Sequence[str]) -> dict[str, str]:
    """The runner's values of these variables; unset ones are left out."""
    return {name: os.environ[name] for name in names if name in os.environ}


def _pump(pipe: IO[bytes], splitter: Splitter, reads: queue.Queue[tuple[Splitter, bytes]]) -> None:
    """Queue each read of a stream; an empty one marks its end."""
    while data := os.read(pipe.fileno(), READ_BYTES):
        reads.put((splitter, data))
    reads.put((splitter, b""))
