"""A log in none of the dialects, read by the user's own regular expressions (`runner/core/log_pattern.py`).

A line with a step's time makes a window of one step. A line with a mean or a rate makes a window of all steps since the previous line, counted
by their step numbers. The first line of a log or epoch covers as many steps as later ones if its number fits (10 before 20, or 9 before 19);
otherwise it makes no window, because its steps cannot be counted. A line that repeats a step is skipped. The first rank that reports a time
represents the job: ranks that wait for each other take the same time.

Python's `re` can take years over a line. Its engine checks for signals while it searches, so a timer of the process's own CPU time ends such
a search. Signals reach only the main thread, which reads the logs of external programs.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Final

from runner.core.events import Event
from runner.core.events.parse import Line
from runner.core.log_pattern import TIMES, LogPattern
from runner.run.dialects.base import SHOWN, DialectError, Facts, LogReader, finite

LIMIT_S: Final = 1.0
"""CPU seconds for one line; a sound pattern takes a few microseconds."""
_TAIL: Final = 3
Groups = Mapping[str, str]


class PatternReader(LogReader):
    """Reads a log by a `LogPattern`."""

    name: ClassVar[str] = "pattern"

    def __init__(self, facts: Facts, pattern: LogPattern) -> None:
        super().__init__(facts)
        self._expressions = [re.compile(line) for line in pattern.lines]
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._timing_rank: int | None = None
        self._samples = facts.batch_per_device * facts.devices if facts.batch_per_device else None
        self._step: int | None = None
        self._epoch: str | None = None
        self._done = 0  # steps of the job so far
        self._stride: int | None = None  # steps from one line to the next
        self._pending: tuple[Groups, float] | None = None  # a first line until its steps are known, and when it came

    def _read(self, line: Line, received: float) -> list[Event]:
        if line.text.strip():
            self._tail.append(line.text.strip()[:SHOWN])
        groups = self._search(line.text)
        if not groups:
            return []
        self.found = True
        if devices := self._number(groups, "devices"):
            self.check_devices(devices=round(devices))
        if groups.get("rank", "").isdecimal():
            self._logging_ranks.add(int(groups["rank"]))
        if groups.keys() <= {"devices", "rank"}:
            return []
        self._take_samples(groups)
        timed = any(name in groups for name in TIMES)
        rank = int(groups["rank"]) if groups.get("rank", "").isdecimal() else line.rank or 0
        if self._timing_rank is None and timed:
            self._timing_rank = rank
        if self._timing_rank not in (None, rank):
            return []
        steps = self._steps(groups)
        if steps == 0:
            return []
        events = self._pending_window()
        self._done += steps or 1
        if "loss" in groups:
            events.append(self._track.loss(received, iteration=self._done - 1, value=finite(groups["loss"])))
        return [*events, *self._window(groups, steps, received)] if timed else events

    def _search(self, text: str) -> Groups:
        """Return the matches by group name. Raises DialectError if a search takes too long."""
        try:
            with _cpu_limit(LIMIT_S):
                matches = [expression.search(text) for expression in self._expressions]
        except TimeoutError as error:
            raise DialectError(
                f"the pattern takes over {LIMIT_S:.0f} s for one line ({text[:SHOWN]!r}); avoid nested repeats "
                "such as (a+)+, and write [^,]* in place of .*"
            ) from error
        return {name: text for match in matches if match for name, text in match.groupdict().items() if text}

    def _take_samples(self, groups: Groups) -> None:
        """Record the samples of a step, whichever line states them; the log overrides the command line."""
        if samples := self._number(groups, "samples"):
            self._samples = round(samples)
        elif batch := self._number(groups, "batch"):
            self._samples = round(batch) * self.facts.devices

    def _steps(self, groups: Groups) -> int | None:
        """Steps since the previous line: 1 if lines have no number, 0 if it is the same; None if unknown, as on most first lines of a log or epoch."""
        if "step" not in groups:
            return 1
        step, before = int(self._number(groups, "step") or 0), self._step
        epoch = groups.get("epoch", "").partition(".")[0]
        restarts = before is None or step < before or epoch != self._epoch
        self._step, self._epoch = step, epoch
        if before is None:
            self._done = max(0, step - 1)
        if restarts:
            return self._stride if self._covers_stride(step) else None
        self._stride = step - (before or 0) or self._stride
        return step - (before or 0)

    def _covers_stride(self, step: int) -> bool:
        """Whether an epoch's first line, at this step, covers as many steps as other lines; programs count from 1 or from 0."""
        return self._stride is not None and step in (self._stride, self._stride - 1)

    def _pending_window(self) -> list[Event]:
        """The window of the first line, once the second line shows how many steps a line covers."""
        if self._pending is None or self._stride is None:
            return []
        (groups, received), self._pending = self._pending, None
        covered = self._covers_stride(int(self._number(groups, "step") or 0))
        return self._window(groups, self._stride, received) if covered else []

    def _window(self, groups: Groups, steps: int | None, received: float) -> list[Event]:
        """The window that a line ends; empty if it begins in the warm-up or its steps are unknown."""
        rate = self._number(groups, "rate") or (self._number(groups, "device_rate") or 0) * self.facts.devices
        if (total_s := self._number(groups, "total_s")) and rate:
            iterations = round(total_s * (self._number(groups, "steps_per_s") or 0)) or 1
            return self._measured(iterations, round(rate * total_s), total_s, received)
        if seconds := self._step_seconds(groups):
            return self._measured(1, self._per_step(), seconds, received)
        mean = self._number(groups, "mean_s") or (self._number(groups, "mean_ms") or 0) / 1000
        if steps is None and self._stride is None:
            self._pending = groups, received
        if steps is None or not (mean or rate):
            return []
        samples = steps * self._per_step()
        return self._measured(steps, samples, steps * mean or samples / rate, received)

    def _step_seconds(self, groups: Groups) -> float | None:
        """The seconds of a single step, if a line states them."""
        if rate := self._number(groups, "steps_per_s"):
            return 1 / rate
        return self._number(groups, "s") or (self._number(groups, "ms") or 0) / 1000 or None

    def _measured(self, iterations: int, samples: int, seconds: float, received: float) -> list[Event]:
        begin = max(0, self._done - iterations)
        if begin < (self.facts.warmup or 0):
            return []
        return self._track.measured(received, begin=begin, iterations=iterations, samples=samples, seconds=seconds)

    def _per_step(self) -> int:
        """Samples of all devices in a step. Raises DialectError if unknown, already at the first line, so that the run ends early."""
        if self._samples is None:
            raise DialectError(
                "neither the pattern nor the command says how many samples a step takes; give --batch N, the samples a "
                "device, or a group `samples`"
            )
        return self._samples

    def _number(self, groups: Groups, name: str) -> float | None:
        """Parse a group's number, without thousands separators; None if the group is missing, and for 0, which a coarse clock makes."""
        if name not in groups:
            return None
        value = finite(groups[name].replace(",", ""))
        if value is None or value < 0:
            self.complain(
                f"group {name} of the pattern matched {groups[name]!r}, which is not a number; narrow it to [\\d.]+"
            )
            return None
        return value or None

    def _no_line_error(self) -> str:
        if not self._tail:
            return "the pattern matched nothing: the log is empty"
        return f"the pattern matched no line; the last of the log: {' | '.join(self._tail)}"

    def _end(self, received: float) -> list[Event]:
        if self._track.windows == 0:
            self.complain(
                f"the pattern found no time after iteration {self.facts.warmup or 0}; the last lines of the log: "
                f"{' | '.join(self._tail)}"
            )
        return [self._track.stop(received)]


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a block that takes more CPU time."""

    def expire(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, expire)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
