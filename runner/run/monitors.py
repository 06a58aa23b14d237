"""Runs the samplers of one run, from before its first container to after its last, whatever the job's outcome.

A sampler only observes: if it does not start, breaks the contract or dies, it leaves a `trouble` event, and the run continues.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from runner.analysis.grading.failures import explain
from runner.core.container_spec import BEAT_S, ContainerSpec
from runner.core.errors import RunFailedError
from runner.core.events import Event, MonitorStart, MonitorStop, Trouble
from runner.core.events.parse import EventError, Rows, parse_line
from runner.core.interrupts import Stopped
from runner.engines.base import Container, Engine, EngineError
from runner.results.store import RunWriter
from runner.run.container_group import HEARTBEAT, TAIL_LENGTH

# Seconds that a sampler has until its first event, and until its last one after it was told to stop.
FIRST_EVENT_S: Final = 15.0
LAST_EVENT_S: Final = 5.0
# Longest wait, in seconds, for a node that no longer answers: its sampler ends with its lease.
LOST_NODE_S: Final = 30.0
# Long enough for a full second of samples, whose mean is the idle power.
IDLE_S: Final = 1.5
POLL_S: Final = 0.25
_TAIL_LINES: Final = 20


@contextmanager
def monitoring(
    specs: Sequence[ContainerSpec],
    *,
    engines: Mapping[str, Engine],
    writer: RunWriter,
    watch: Callable[[Event], None],
    idle_s: float | None,
    stopped: Stopped,
    gpus_idle: bool = False,
    counts_energy: bool = True,
) -> Iterator[None]:
    """Run samplers for the duration of the block, each started by the engine of its node.

    Before the block, they sample idle machines for `idle_s` seconds if one of them can measure power; None means as long as idle power needs.
    `stopped` cuts that short once it is marked. `gpus_idle` says that the block leaves GPUs idle long enough at first, `counts_energy` that a
    host may be able to measure its power. With idle GPUs, no such host, and `idle_s` None, the block starts without waiting for samplers.
    """
    samplers = [_Sampler(spec, engines[spec.node], writer, watch) for spec in specs]
    finished = threading.Event()
    try:
        for sampler in samplers:
            sampler.start(finished)
        if idle_s is not None or not gpus_idle or counts_energy:
            _wait_idle(samplers, idle_s=idle_s, gpus_idle=gpus_idle, stop=lambda: bool(stopped.by or writer.failure))
        yield
    finally:
        finished.set()
        ends = [threading.Thread(target=sampler.stop, daemon=True) for sampler in samplers]
        for end in ends:
            end.start()
        deadline = time.monotonic() + LOST_NODE_S
        for end in ends:
            end.join(max(0.0, deadline - time.monotonic()))


def _wait_idle(
    samplers: Sequence[_Sampler], *, idle_s: float | None, gpus_idle: bool, stop: Callable[[], bool]
) -> None:
    """Wait until the samplers have said what they can measure, then for as long as idle power needs."""
    deadline = time.monotonic() + FIRST_EVENT_S
    for sampler in samplers:
        sampler.ready.wait(deadline - time.monotonic())
    if idle_s is None:
        idle_s = 0 if gpus_idle and not any(sampler.sees_host_power for sampler in samplers) else IDLE_S
    if any(sampler.sees_host_power or sampler.sees_gpus for sampler in samplers):
        remaining = idle_s
        while remaining > 0 and not stop():
            time.sleep(min(remaining, POLL_S))
            remaining -= POLL_S


class _Sampler:
    """One sampler, and the thread that reads its output."""

    def __init__(self, spec: ContainerSpec, engine: Engine, writer: RunWriter, watch: Callable[[Event], None]) -> None:
        self.ready = threading.Event()
        self.sees_gpus = self.sees_host_power = False
        self._spec, self._engine, self._writer, self._watch = spec, engine, writer, watch
        self._container: Container | None = None
        self._started = threading.Event()
        self._said_end = False
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, finished: threading.Event) -> None:
        """Start the sampler, and send it heartbeats until `finished` is set."""
        self._thread.start()
        threading.Thread(target=self._send_heartbeats, args=(finished,), daemon=True).start()

    def stop(self) -> None:
        """Terminate the sampler, read its last events from the output, which stays open, and remove it."""
        self._started.wait(FIRST_EVENT_S)
        if self._container:
            self._container.stop()
            self._thread.join(LAST_EVENT_S)
            self._container.remove()

    def _send_heartbeats(self, finished: threading.Event) -> None:
        while not finished.wait(BEAT_S):
            if self._container:
                self._container.send(HEARTBEAT)

    def _run(self) -> None:
        try:
            self._container = container = self._engine.start(self._spec)
            self._started.set()
            for line in container.lines():
                if line.whole:
                    self._read(line.text, stdout=line.stream == "stdout")
            code = container.wait()
            if not self._said_end:
                self._report_trouble(f"the sampler {explain(code, self._tail, trains=False)}")
        except (EngineError, EventError) as error:
            self._report_trouble(f"the sampler could not be heard: {error}")
        except RunFailedError:
            pass  # the writer keeps the failure, which ends the run
        finally:
            self._started.set()
            self.ready.set()

    def _read(self, text: str, *, stdout: bool) -> None:
        heard = parse_line(text, received=time.monotonic(), container=self._spec.name) if stdout else None
        if isinstance(heard, Rows):
            self._writer.rows(heard)
        elif heard is None:
            self._tail.append(text[:TAIL_LENGTH])
            self._writer.log(self._spec.name, text)
        else:
            self._event(heard)

    def _event(self, event: Event) -> None:
        self._writer.event(event)
        self._watch(event)
        if isinstance(event, MonitorStart):
            self.sees_gpus = bool(event.gpus)
            self.sees_host_power = event.sources.get("rapl", "") is None
            self.ready.set()
        if isinstance(event, MonitorStop):
            self._said_end = True

    def _report_trouble(self, reason: str) -> None:
        now = time.monotonic()
        with suppress(RunFailedError):
            name = self._spec.name
            trouble = Trouble(
                event="trouble", rank=0, t=now, received=now, container=name, device="host", fields=(), reason=reason
            )
            self._event(trouble)
