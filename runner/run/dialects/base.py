"""What all dialects share: the facts they start from, the interface of their readers, and the events that they make. Pure: no clock, no file.

A dialect reads the unmodified log of a program that does not use `workloads/events.py`, and returns the suite's own events, so that all later
steps are the same for all programs. A log says how long something took, but not when it began. Windows are therefore laid end to end on a
clock that starts with the first one, and the time between them (an evaluation, the end of an epoch) is in no figure. A log covers the whole
job: rank 0 has the samples of all devices, unless a dialect says otherwise.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Final, Protocol

from runner.core.errors import RunFailedError, shorten
from runner.core.events import Event, FirstStep, Loss, RunStop, WarmupEnd, Window
from runner.core.events.parse import Line, untag
from runner.core.request import DialectName

SHOWN: Final = 200
LONGEST: Final = 4096
"""Characters of a line that are searched: no dialect has longer lines, and searching a MiB of digits takes a second."""
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*[mK]")  # terminal colours, which programs also write to files


class DialectError(RunFailedError):
    """A log is in no dialect that was tried, lacks a value that its figures need, or itself says that they are wrong."""


@dataclass(frozen=True)
class Facts:
    """Facts about a run that the user or the trial states and logs do not."""

    batch_per_device: int | None  # samples per device and iteration; None if the log has to state it
    devices: int  # of the whole job
    warmup: int | None  # first iterations of the job that count in no figure; None for the program's own warm-up only
    container: str  # that writes the log
    command: tuple[str, ...] = ()  # argv; some options change the meaning of a line

    @property
    def words(self) -> list[str]:
        """The words of the command, even if it is a single string for a shell."""
        return " ".join(self.command).split()

    def option(self, name: str, default: int) -> int:
        """The value of an integer option of the command, as `--name 5` or `--name=5`; dashes and underscores are equivalent."""
        wanted = name.replace("_", "-")
        words = self.words
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            key, equals, value = word.partition("=")
            if key.replace("_", "-") == wanted:
                text = value if equals else following
                return int(text) if text.isdecimal() else default
        return default


class Reader(Protocol):
    """Reads the log of one container, line by line."""

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Read one unmodified line of any stream, and return the events that it completes.

        `received` is when it was read, on the runner's monotonic clock in seconds. Some readers raise DialectError early, as `close` does.
        """

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log after a clean exit, and return the events that depend on all of it.

        Raises DialectError if no line is in this dialect, or the log lacks a value that the figures need or says that they are wrong.
        """


def finite(text: str) -> float | None:
    """Parse a number; None if the text is not one or the number is not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class LogReader(ABC):
    """Base of the dialects: strips prefixes, remembers the first line, and keeps complaints until the end.

    `unit` is the unit of the log's rates; `found` becomes true once a line that is specific to this dialect was read.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "samples/s"

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.found = False
        self._track = Track(facts.container)
        self._first_line = ""
        self._fault: str | None = None
        self._logged_devices = 1  # of the job, according to the log
        self._logging_ranks: set[int] = set()  # ranks with lines of their own

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Read one line; see `Reader.feed`."""
        text = _COLOUR.sub("", text[:LONGEST])
        self._first_line = self._first_line or text.strip()
        line = untag(text.rstrip())
        if line.rank is not None:
            self._logging_ranks.add(line.rank)
        return tuple(self._read(line, received))

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log; see `Reader.close`."""
        if not self.found:
            raise DialectError(self._no_line_error())
        events = self._end(received)
        if self._fault is not None:
            raise DialectError(self._fault)
        logged = {"devices": max(self._logged_devices, len(self._logging_ranks))}
        return tuple(event.model_copy(update=logged) if isinstance(event, RunStop) else event for event in events)

    def complain(self, sentence: str) -> None:
        """Record what is wrong with the log; `close` raises the first complaint."""
        self._fault = self._fault or sentence

    def check_devices(self, *, devices: int) -> None:
        """Record the number of devices that the log states; complain if another number was requested."""
        self._logged_devices = devices
        if devices != self.facts.devices:
            self.complain(
                f"the {self.name} log names {devices} device{'s' * (devices != 1)}, the run was asked for "
                f"{self.facts.devices}; ask for as many as the command uses"
            )

    @abstractmethod
    def _read(self, line: Line, received: float) -> list[Event]:
        """Return the events that a line completes; sets `found` and may complain."""

    def _no_line_error(self) -> str:
        """The error for a log without a line of this dialect."""
        return no_line_error(self._first_line, self.name)

    @abstractmethod
    def _end(self, received: float) -> list[Event]:
        """Return the events that depend on the whole log; may complain."""


def no_line_error(first_line: str, *names: str) -> str:
    """The error for a log that no dialect matches."""
    tried = f"the first line that was tried: {shorten(first_line)!r}" if first_line else "the log is empty"
    which = f"dialect {names[0]}" if len(names) == 1 else f"any dialect ({', '.join(names)})"
    return f"no line is in {which}; {tried}; choose another with --dialect, describe the log with --pattern, or let the program write events"


class AutoReader:
    """Feeds all readers until one, in table order, matches a line, and only that one from then on. `name` is its dialect, None before."""

    def __init__(self, facts: Facts, readers: Mapping[DialectName, type[LogReader]]) -> None:
        self._candidates = {name: make(facts) for name, make in readers.items()}
        self._pending: dict[DialectName, list[Event]] = {name: [] for name in readers}
        self._first_line = ""
        self.name: DialectName | None = None

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Read one line; the line that reveals the dialect also returns the events of all earlier lines."""
        self._first_line = self._first_line or text.strip()
        if self.name is not None:
            return self._candidates[self.name].feed(text, received=received)
        for name, reader in self._candidates.items():
            self._pending[name] += reader.feed(text, received=received)
        self.name = next((name for name, reader in self._candidates.items() if reader.found), None)
        return tuple(self._pending[self.name]) if self.name else ()

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log; see `Reader.close`."""
        if self.name is None:
            raise DialectError(no_line_error(self._first_line, *self._candidates))
        return self._candidates[self.name].close(received=received)


class FiguresReader:
    """Passes on only losses and measured windows from another reader, for a log of one of the suite's own programs.

    The program itself writes the events of a run's begin and end. `iterations` are measured; windows after them are dropped.
    """

    def __init__(self, reader: Reader, *, iterations: int) -> None:
        self._reader = reader
        self._left = iterations

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Read one line; see `Reader.feed`."""
        return self._select(self._reader.feed(text, received=received))

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log; see `Reader.close`."""
        return self._select(self._reader.close(received=received))

    def _select(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        found: list[Event] = []
        for event in events:
            if isinstance(event, Window):
                if event.iterations <= self._left:
                    found.append(event)
                self._left -= event.iterations
            elif isinstance(event, Loss):
                found.append(event)
        return tuple(found)


class Track:
    """Makes the events of one rank, and sums their iterations and samples."""

    def __init__(self, container: str, *, rank: int = 0) -> None:
        self.windows = 0
        self._origin = {"container": container, "rank": rank}
        self._next_start: float | None = None
        self._iterations = 0
        self._samples = 0

    def _fields(self, received: float, **fields: Any) -> dict[str, Any]:
        return {**self._origin, "t": received, "received": received, **fields}

    def first_step(self, received: float) -> FirstStep:
        """The first iteration of the job is done."""
        return FirstStep(**self._fields(received, event="first_step"))

    def warmup_end(self, received: float, *, iterations: int) -> WarmupEnd:
        """The measured iterations begin at `received`, after `iterations` of the job."""
        self._next_start = received
        return WarmupEnd(**self._fields(received, event="warmup_end", iterations=iterations))

    def window(self, received: float, *, iterations: int, samples: int, seconds: float) -> Window:
        """The next iterations, which took `seconds`."""
        start = received - seconds if self._next_start is None else self._next_start
        sizes = {"iterations": iterations, "samples": samples, "seconds": seconds}
        window = Window(**self._fields(received, event="window", index=self.windows, start=start, **sizes))
        self.windows += 1
        self._next_start = start + seconds
        self._iterations += iterations
        self._samples += samples
        return window

    def measured(self, received: float, *, begin: int, iterations: int, samples: int, seconds: float) -> list[Event]:
        """The next window, which begins after `begin` iterations; before the very first window comes the end of the warm-up."""
        before = [] if self.windows else [self.warmup_end(received - seconds, iterations=begin)]
        return [*before, self.window(received, iterations=iterations, samples=samples, seconds=seconds)]

    def loss(self, received: float, *, iteration: int, value: float | None) -> Loss:
        """The loss of an iteration; None if it is not finite."""
        return Loss(**self._fields(received, event="loss", first_iteration=iteration, values=(value,)))

    def stop(self, received: float) -> RunStop:
        """The end of the run, with the iterations and samples of all windows; no log has the norm of the weights."""
        sums = {"iterations": self._iterations, "samples": self._samples}
        return RunStop(**self._fields(received, event="run_stop", **sums))
