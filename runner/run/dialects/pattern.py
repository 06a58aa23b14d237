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
Told = Mapping[str, str]


class PatternReader(LogReader):
    """Reads a log by a `LogPattern`."""

    name: ClassVar[str] = "pattern"

    def __init__(self, facts: Facts, pattern: LogPattern) -> None:
        super().__init__(facts)
        self._expressions = [re.compile(line) for line in pattern.lines]
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._speaker: int | None = None
        self._samples = facts.batch_per_device * facts.devices if facts.batch_per_device else None
        self._step: int | None = None
        self._epoch: str | None = None
        self._done = 0  # steps of the job so far
        self._between: int | None = None  # steps from one line to the next
        self._first: tuple[Told, float] | None = None  # a first line until its steps are known, and its time of receipt

    def _read(self, line: Line, received: float) -> list[Event]:
        if line.text.strip():
            self._tail.append(line.text.strip()[:SHOWN])
        told = self._told(line.text)
        if not told:
            return []
        self.found = True
        if devices := self._number(told, "devices"):
            self.agree(devices=round(devices))
        if told.get("rank", "").isdecimal():
            self._heard.add(int(told["rank"]))
        if told.keys() <= {"devices", "rank"}:
            return []
        self._take_samples(told)
        timed = any(name in told for name in TIMES)
        rank = int(told["rank"]) if told.get("rank", "").isdecimal() else line.rank or 0
        if self._speaker is None and timed:
            self._speaker = rank
        if self._speaker not in (None, rank):
            return []
        steps = self._steps(told)
        if steps == 0:
            return []
        events = self._earlier()
        self._done += steps or 1
        if "loss" in told:
            events.append(self._track.loss(received, iteration=self._done - 1, value=finite(told["loss"])))
        return [*events, *self._window(told, steps, received)] if timed else events

    def _told(self, text: str) -> Told:
        """Return the matches by group name. Raises DialectError if a search takes too long."""
        try:
            with _cpu_limit(LIMIT_S):
                matches = [expression.search(text) for expression in self._expressions]
        except TimeoutError as error:
            raise DialectError(
                f"the pattern takes over {LIMIT_S:.0f} s for one line ({text[:SHOWN]!r}); write it without a repeat in a "
                "repeat such as (a+)+, and with [^,]* for .*"
            ) from error
        return {name: text for match in matches if match for name, text in match.groupdict().items() if text}

    def _take_samples(self, told: Told) -> None:
        """Record the samples of a step, whichever line states them; the log overrides the command line."""
        if samples := self._number(told, "samples"):
            self._samples = round(samples)
        elif batch := self._number(told, "batch"):
            self._samples = round(batch) * self.facts.devices

    def _steps(self, told: Told) -> int | None:
        """Steps since the previous line, 0 if it had the same step; None if unknown, as on the first line of a log or epoch."""
        if "step" not in told:
            return 1
        step, before = int(self._number(told, "step") or 0), self._step
        epoch = told.get("epoch", "").partition(".")[0]
        anew = before is None or step < before or epoch != self._epoch
        self._step, self._epoch = step, epoch
        if before is None:
            self._done = max(0, step - 1)
        if anew:
            return self._between if self._whole(step) else None
        self._between = step - (before or 0) or self._between
        return step - (before or 0)

    def _whole(self, step: int) -> bool:
        """Whether an epoch's first line, at this step, covers as many steps as other lines; programs count from 1 or from 0."""
        return self._between is not None and step in (self._between, self._between - 1)

    def _earlier(self) -> list[Event]:
        """The window of the first line, once the second line shows how many steps a line covers."""
        if self._first is None or self._between is None:
            return []
        (told, received), self._first = self._first, None
        whole = self._whole(int(self._number(told, "step") or 0))
        return self._window(told, self._between, received) if whole else []

    def _window(self, told: Told, steps: int | None, received: float) -> list[Event]:
        """The window that a line ends; empty if it begins in the warm-up or its steps are unknown."""
        rate = self._number(told, "rate") or (self._number(told, "device_rate") or 0) * self.facts.devices
        if (total_s := self._number(told, "total_s")) and rate:
            iterations = round(total_s * (self._number(told, "steps_per_s") or 0)) or 1
            return self._counted(iterations, round(rate * total_s), total_s, received)
        if one := self._of_one_step(told):
            return self._counted(1, self._per_step(), one, received)
        mean = self._number(told, "mean_s") or (self._number(told, "mean_ms") or 0) / 1000
        if steps is None and self._between is None:
            self._first = told, received
        if steps is None or not (mean or rate):
            return []
        samples = steps * self._per_step()
        return self._counted(steps, samples, steps * mean or samples / rate, received)

    def _of_one_step(self, told: Told) -> float | None:
        """The seconds of a single step, if a line states them."""
        if a_second := self._number(told, "steps_per_s"):
            return 1 / a_second
        return self._number(told, "s") or (self._number(told, "ms") or 0) / 1000 or None

    def _counted(self, iterations: int, samples: int, seconds: float, received: float) -> list[Event]:
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

    def _number(self, told: Told, name: str) -> float | None:
        """Parse a group's number, without thousands separators; None if the group is missing, and for 0, which a coarse clock makes."""
        if name not in told:
            return None
        value = finite(told[name].replace(",", ""))
        if value is None or value < 0:
            self.complain(
                f"group {name} of the pattern caught {told[name]!r}, which is no number; narrow it to [\\d.]+"
            )
            return None
        return value or None

    def _nothing_found(self) -> str:
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
