"""Engines that are a command line: a way (`ways.py`) in which an argv reaches a node, and a box (`boxes.py`) around the job there.

Each container is the process of its argv on this machine, which carries its output and holds its lease by standard input.
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
from runner.engines.base import AHEAD, Container, EngineError, EngineFacts, Line, NodeGoneError, Site, Splitter
from runner.engines.boxes import Box
from runner.engines.owner import signed
from runner.engines.process import CommandError, run
from runner.engines.ways import Way

STOP_GRACE_S: Final = 8.0
# A container that takes longer to start is not waited for: who needs it says so.
UP_S: Final = 30.0
# What reaching a silent node anew may take: a busy controller of Slurm is slow.
REACH_S: Final = 20.0
READ_BYTES: Final = 2**16


class CommandEngine:
    """Containers of a box, reached in one way."""

    def __init__(self, way: Way, box: Box, *, version: str | None, heard: dict[str, float] | None = None) -> None:
        """`heard` has by node when anything of it was heard last; the engines of one run share it."""
        self.way, self.box, self.version = way, box, version
        self.heard = {} if heard is None else heard

    @property
    def name(self) -> EngineName:
        """The value of ENGINE that names it."""
        return self.box.name

    def facts(self) -> EngineFacts:
        """Whoever made it knows that it is there, and which version."""
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
        """Reach a node anew of which nothing was heard for long, where the way does not tell by itself that the other end is gone."""
        now = time.monotonic()
        if self.way.tells or now - self.heard.setdefault(node, now) < SILENCE_S:
            return
        try:
            run(self.way.reach(node, ("true",)), env=self._env(), timeout_s=REACH_S)
        except CommandError as error:
            raise NodeGoneError(
                f"nothing was heard of it for {SILENCE_S:g} s, and it can't be reached anew: {error.last_line}"
            ) from error
        self._hear(node)

    def _hear(self, node: str) -> None:
        self.heard[node] = time.monotonic()

    def _env(self) -> dict[str, str]:
        return passed((*self.box.sees, *self.way.sees))

    def start(self, spec: ContainerSpec) -> Container:
        """Start the argv; returns when others can join its network, or it has ended already."""
        spec = spec.model_copy(update={"labels": signed(spec.labels)})
        env = self._env()
        up, removal = (
            words and self.way.reach(spec.node, words) for words in (self.box.up(spec), self.box.removal(spec))
        )
        # What waits to be up is held by a manager of the box's own, in groups and sessions that the way knows nothing of.
        heard = functools.partial(self._hear, spec.node)
        container = start_process(
            spec.name, self.argv(spec), way=self.way, env=env, removal=removal, told=not up, heard=heard
        )
        container.tell(self.box.begin(spec))
        deadline = time.monotonic() + UP_S
        while up and not container.ended() and time.monotonic() < deadline:
            with contextlib.suppress(CommandError):
                run(up, env=env, timeout_s=UP_S)
                break
        return container

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The way, the box, and the job in it."""
        return self.way.reach(spec.node, self.box.argv(spec))

    def command_line(self, spec: ContainerSpec) -> str:
        """The argv that is started, less whose it is."""
        return shlex.join(self.argv(spec))


def start_process(
    name: str,
    argv: Sequence[str],
    *,
    way: Way,
    env: Mapping[str, str],
    removal: Sequence[str] = (),
    told: bool = True,
    heard: Callable[[], None],
) -> ProcessContainer:
    """Start a process tree with a pipe as its lease; `removal` is run where it was ended before its time. Raises EngineError.

    `told` says that the way tells its processes from others; `heard` is called whenever the process writes something, or closes what it writes to.
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
    identifier = way.identifier(process.pid) if told else None
    return ProcessContainer(name, process, way, removal=(removal, env), identifier=identifier, heard=heard)


class ProcessContainer:
    """A container as the process that leads to it; at the far end the first process is the lease holder."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        way: Way,
        *,
        removal: tuple[Sequence[str], Mapping[str, str]],
        identifier: str | None,
        heard: Callable[[], None],
    ) -> None:
        self.name = name
        self.identifier = identifier
        self._removal, self._env = removal
        self._process = process
        self._way = way
        self._heard = heard
        self._writing = threading.Lock()

    def lines(self) -> Iterator[Line]:
        """Yield lines of both streams as they arrive."""
        found: queue.Queue[tuple[Splitter, bytes]] = queue.Queue(maxsize=AHEAD)
        for pipe, splitter in ((self._process.stdout, Splitter("stdout")), (self._process.stderr, Splitter("stderr"))):
            threading.Thread(target=_pump, args=(pipe, splitter, found), daemon=True).start()
        open_streams = 2
        while open_streams:
            splitter, data = found.get()
            self._heard()
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
        with self._writing, contextlib.suppress(OSError, ValueError):
            if self._process.stdin:
                os.write(self._process.stdin.fileno(), line)

    def let_go(self) -> None:
        """Close the lease holder's standard input."""
        with self._writing, contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def stop(self) -> None:
        """Let the lease go, which ends the job; terminate what leads to it where that takes too long, and kill it if even that hangs."""
        if self.ended():
            return
        self.let_go()
        if not self.ended(self._way.grace_s):
            self._process.terminate()
            if not self.ended(STOP_GRACE_S):
                os.killpg(self._process.pid, signal.SIGKILL)

    def remove(self) -> None:
        """See to it that it has ended, and that nothing is left where it was ended before its time, or failed."""
        self.stop()
        self.let_go()
        if self._process.wait() and self._removal:
            with contextlib.suppress(CommandError):
                run(self._removal, env=self._env, timeout_s=UP_S)

    def ended(self, patience_s: float = 0.0) -> bool:
        """Whether its process ends within this many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
            return True
        return False


def passed(names: Sequence[str]) -> dict[str, str]:
    """Of these variables those that the runner has."""
    return {name: os.environ[name] for name in names if name in os.environ}


def _pump(pipe: IO[bytes], splitter: Splitter, found: queue.Queue[tuple[Splitter, bytes]]) -> None:
    """Hand over each read of a stream; an empty one is its end."""
    while data := os.read(pipe.fileno(), READ_BYTES):
        found.put((splitter, data))
    found.put((splitter, b""))
