"""Runs the containers of one trial until they exit and keeps every line that they write. The only stage that waits.

The first container to fail ends the others. So do the wall-clock limit, too long a silence, a stop signal (`interrupts.py`), a lost node, and
a record that can no longer be written. Daemons are ended once all other containers have exited. All containers are removed, unless their
engine no longer answers; then the lease ends the job on that node.
"""

from __future__ import annotations

import queue
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from runner.analysis.grading.failures import explain
from runner.core.container_spec import ContainerSpec
from runner.core.errors import RunFailedError
from runner.core.events import Event
from runner.core.events.parse import EventError, Rows, parse_line
from runner.core.interrupts import Stopped
from runner.core.record import Outcome, Status
from runner.core.request import Request
from runner.core.trial import AnyTrial, Trial
from runner.engines.base import TRUNCATED, Engine, EngineError, Line
from runner.results.store import RunWriter
from runner.run.container_group import POLL_S, TAIL_LENGTH, TAIL_LINES, ContainerGroup, Stop
from runner.run.dialects.base import DialectError, Reader

# How long a run may stay silent. TorchInductor takes three minutes on 16 cores to compile a network of 50 layers and time its kernels.
INACTIVITY_S: Final = 600.0
SEARCH_INACTIVITY_S: Final = 1800.0
# How long the scheduler and servers may outlive the last worker before the run fails.
HELPERS_GRACE_S: Final = 30.0
# Seconds between checks that the record can still be written.
WRITE_CHECK_S: Final = 1.0
# At most this many characters of split lines are buffered, so that a program that never ends a line cannot exhaust memory. Each buffered
# piece counts as `_PIECE_OVERHEAD` more.
MAX_BUFFERED: Final = 2**25
_PIECE_OVERHEAD: Final = 256
# Open MPI's tag contains a job number. horovodrun's own prefix has none; it precedes whole lines only.
_MPI_TAG: Final = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:")


@dataclass(frozen=True)
class Limits:
    """The wall-clock limit of a run in seconds, the flag that sets it, and the longest silence in seconds."""

    wall_s: float
    silence_s: float
    flag: str = "--timeout"

    @classmethod
    def of(cls, request: Request, trial: AnyTrial) -> Limits:
        """The request's limits, for a measured run or for a profiling pass."""
        searches = isinstance(trial, Trial) and "kernel-search" in trial.techniques
        silence_s = request.inactivity_timeout_s or (SEARCH_INACTIVITY_S if searches else INACTIVITY_S)
        if trial.profile:
            return cls(request.profile_timeout_s, silence_s, flag="--profile-timeout")
        return cls(request.timeout_s, silence_s)

    def check(self, now: float, *, started: float, last_output: float) -> None:
        """Stop the run if the time since its start, or since its last output, exceeds the limit."""
        if now - started > self.wall_s:
            raise Stop("timeout", f"no end after {self.wall_s:.0f} s; give a longer {self.flag} if the job needs it")
        if now - last_output > self.silence_s:
            raise Stop(
                "silent", f"no output for {self.silence_s:.0f} s; the job hangs, or needs a longer --inactivity-timeout"
            )


class LineAssembler:
    """Reassembles the lines that ranks wrote from the physical lines of one stream; each line of a rank has one tag.

    mpirun forwards a rank's output in pieces of at most 4,096 bytes, each after a tag such as `[1,3]<stdout>:` and without a newline of its
    own (Open MPI's --tag-output, orte/mca/iof/base/iof_base_output.c). If ranks write concurrently, a physical line is a chain of pieces
    of several ranks, and ends only the line that its last piece belongs to.
    """

    def __init__(self) -> None:
        self._unfinished: dict[str, list[str]] = {}
        self._buffered = 0

    def feed(self, text: str) -> tuple[str, ...]:
        """Add a physical line, without its newline, and return the lines that it completes: one, or two if untagged text precedes the tags."""
        tags = list(_MPI_TAG.finditer(text))
        if not tags:
            return (text,)
        edges = [*(tag.start() for tag in tags), len(text)]
        for tag, end in zip(tags[:-1], edges[1:-1], strict=True):
            if self._buffered < MAX_BUFFERED:
                self._unfinished.setdefault(tag.group(), []).append(text[tag.end() : end])
                self._buffered += _PIECE_OVERHEAD + end - tag.end()
        last = tags[-1].group()
        untagged = (text[: edges[0]],) if edges[0] else ()
        pieces = self._unfinished.pop(last, [])
        self._buffered -= sum(_PIECE_OVERHEAD + len(piece) for piece in pieces)
        return (*untagged, last + "".join(pieces) + text[tags[-1].end() :])

    def close(self) -> tuple[str, ...]:
        """Return the lines that were never ended."""
        rest = tuple(tag + "".join(pieces) for tag, pieces in self._unfinished.items())
        self._unfinished, self._buffered = {}, 0
        return rest


@contextmanager
def _ends_the_run() -> Iterator[None]:
    """Turn output that breaks the contract, or that a dialect can't use, into the failure of its run."""
    try:
        yield
    except (DialectError, EventError) as error:
        raise Stop("failed", str(error)) from error


@dataclass
class Output:
    """Routes the containers' output: events to the record and to `watch`, all other lines to the log and to a dialect's reader."""

    group: ContainerGroup
    writer: RunWriter
    watch: Callable[[Event], None]
    readers: Mapping[str, Reader]
    assemblers: defaultdict[tuple[str, str], LineAssembler] = field(default_factory=lambda: defaultdict(LineAssembler))
    cut: set[str] = field(default_factory=set)

    def line(self, name: str, line: Line, *, received: float) -> None:
        """Process one physical line, and ignore signs of life. Raises Stop if an event in it breaks the contract, or its reader refuses it."""
        if line.whole:
            if line.text.endswith(TRUNCATED):
                self.cut.add(name)
            with _ends_the_run():
                for text in self.assemblers[name, line.stream].feed(line.text):
                    self._route(name, line.stream, text, received=received)

    def flush(self, name: str) -> None:
        """Log the last, unterminated lines of a container that has exited."""
        for stream in ("stdout", "stderr"):
            for text in self.assemblers[name, stream].close():
                self.writer.log(name, text)
                self.group.add_to_tail(name, text)

    def _route(self, name: str, stream: str, text: str, *, received: float) -> None:
        event = parse_line(text, received=received, container=name) if stream == "stdout" else None
        if isinstance(event, Rows):
            self.writer.rows(event)
        elif event is not None:
            self._event(event)
        else:
            self.writer.log(name, text)
            self.group.add_to_tail(name, text)
            if reader := self.readers.get(name):
                for event in reader.feed(text, received=received):
                    self._event(event)

    def close_reader(self, name: str, *, received: float) -> None:
        """Close a container's reader after a clean exit. Raises Stop if its log lacks a value that the figures need."""
        if reader := self.readers.get(name):
            with _ends_the_run():
                for event in reader.close(received=received):
                    self._event(event)

    def _event(self, event: Event) -> None:
        self.group.last_events[event.container][event.rank] = event.event
        self.writer.event(event)
        self.watch(event)


def execute(
    *,
    engines: Mapping[str, Engine],
    specs: Sequence[ContainerSpec],
    writer: RunWriter,
    limits: Limits,
    watch: Callable[[Event], None],
    readers: Mapping[str, Reader] | None = None,
    keys: Mapping[str, bytes] | None = None,
    remote: bool = False,
    stopped: Stopped | None = None,
) -> Outcome:
    """Run all containers of a trial and return how that went. Every failure is an outcome, even a full disk; only a bug raises.

    `engines` are by node; on each, containers start in the order of `specs`, daemons first. By container, `readers` turn ordinary lines into events (none
    for programs that write events themselves), and `keys` are sent to the lease first. With `remote`, engines are on other machines, and
    both sides exchange heartbeats. The run ends once `stopped` is marked.
    """
    started = time.monotonic()
    stopped = stopped or Stopped()
    group = ContainerGroup({spec.name: spec.node for spec in specs})
    phases: dict[str, float] = {}
    status: Status = "ok"
    reason: str | None = None
    output = Output(group, writer, watch, readers or {})
    try:
        _raise_if_stopped(stopped)
        if remote:
            group.keep_alive({spec.node: engines[spec.node] for spec in specs})
        group.start(engines, specs, keys or {})
        phases["create"] = time.monotonic() - started
        _follow(group, output, specs=specs, limits=limits, started=started, stopped=stopped)
    except Stop as stop:
        status, reason = stop.status, stop.reason
    except RunFailedError as error:  # the record can no longer be written, or a log cannot be read (DialectError)
        status, reason = "failed", str(error)
    finally:
        group.end()
    phases["total"] = time.monotonic() - started
    return Outcome(
        status=status,
        reason=reason,
        exit_codes=group.exit_codes,
        started=started,
        phases_s=phases,
        containers=group.identifiers,
        lost=tuple(sorted(group.lost)),
        cut=tuple(sorted(output.cut)),
    )


def _raise_if_stopped(stopped: Stopped) -> None:
    """Raise Stop if a signal has stopped the run."""
    if stopped.by:
        raise Stop("interrupted", stopped.reason)


def _follow(
    group: ContainerGroup,
    output: Output,
    *,
    specs: Sequence[ContainerSpec],
    limits: Limits,
    started: float,
    stopped: Stopped,
) -> None:
    """Process output until every container except the daemons has exited."""
    workers = {spec.name for spec in specs if spec.role == "worker"}
    daemons = {spec.name for spec in specs if spec.role == "daemon"}
    awaited = {spec.name for spec in specs} - daemons
    last_output = last_check = time.monotonic()
    workers_ended: float | None = None
    while not awaited <= set(group.exit_codes):
        _raise_if_stopped(stopped)
        now = time.monotonic()
        if now - last_check > WRITE_CHECK_S:
            output.writer.check()
            last_check = now
        limits.check(now, started=started, last_output=last_output)
        if workers_ended and now - workers_ended > HELPERS_GRACE_S:
            remaining = ", ".join(sorted(awaited - set(group.exit_codes)))
            raise Stop("failed", f"{remaining} did not end although every worker had")
        try:
            name, item = group.output.get(timeout=POLL_S)
        except queue.Empty:
            continue
        last_output = time.monotonic()
        if isinstance(item, Line):
            output.line(name, item, received=last_output)
            continue
        if isinstance(item, EngineError):
            group.lost.add(group.nodes[name])
            raise Stop(
                "failed",
                f"{group.nodes[name]} was lost: its engine no longer answers ({item}); check that the machine, its "
                "network and its engine are up, then run `dlscale clean` to remove what the node kept",
            )
        group.exit_codes[name] = item
        output.flush(name)
        if name in daemons:
            raise Stop("failed", f"{group.explain(name)}; it exited before the containers that it serves")
        if item != 0:
            raise Stop("failed", group.explain(name))
        output.close_reader(name, received=last_output)
        if workers <= set(group.exit_codes):
            workers_ended = last_output


def run_tool(engine: Engine, spec: ContainerSpec, say: Callable[[str], None]) -> None:
    """Run a container of a preparatory step until it exits, and pass every line that it writes to `say`.

    Raises RunFailedError if it does not start, if its exit code is lost, or, with its last lines, if it does not exit 0.
    """
    try:
        container = engine.start(spec)
    except EngineError as error:
        raise RunFailedError(f"{engine.name} would not start {spec.name}: {error}") from error
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        for line in container.lines():
            if line.whole:
                tail.append(line.text[:TAIL_LENGTH])
                say(line.text)
        code = container.wait()
    except EngineError as error:
        raise RunFailedError(f"{engine.name} no longer answers for {spec.name}: {error}") from error
    finally:
        container.stop()
        container.remove()
    if code != 0:
        raise RunFailedError(f"{spec.name}: {explain(code, tail)}")
