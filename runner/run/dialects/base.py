"""What every dialect shares: what it is told, what it answers, and the events that it makes. Pure: no clock, no file.

A dialect reads the unmodified log of a program that does not speak `workloads/events.py` and answers with the suite's own events,
so that everything after it is the same for all programs. Logs tell how long something took but not when it began: windows are laid
end to end on a clock that starts when the first of them did, so what happened between them (an evaluation, an epoch's border) is in no
figure. A log speaks for the whole job: rank 0 holds the samples of all devices, except where a dialect says otherwise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar, Final, Protocol

from runner.core.errors import RunFailedError
from runner.core.events import Event, FirstStep, Loss, RunStop, WarmupEnd, Window
from runner.core.events.parse import Line, untag

SHOWN: Final = 200
LONGEST: Final = 4096
"""Characters of a line that are looked at: no dialect has longer ones, and searching a MiB of digits takes a second."""


class DialectError(RunFailedError):
    """A log is in no dialect that was tried, or lacks what its figures need, or says itself that they are wrong."""


@dataclass(frozen=True)
class Facts:
    """What the user or the trial says and logs do not.

    Attributes:
        batch_per_device: samples that one device takes in one iteration; None where the log has to tell.
        devices: of the whole job.
        warmup: iterations of the job, from its first, that count in no figure; None for none beyond the program's own.
        container: that the log comes from.
        command: the program's argv, from which a dialect takes options that change what a line means.
    """

    batch_per_device: int | None
    devices: int
    warmup: int | None
    container: str
    command: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Words of the command, also of one that is handed to a shell as a single string."""
        return " ".join(self.command).split()

    def option(self, name: str, default: int) -> int:
        """Value of a whole-number option of the command, as `--name 5` or `--name=5`, dashes and underscores alike."""
        wanted = name.replace("_", "-")
        words = self.words
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            key, given, value = word.partition("=")
            if key.replace("_", "-") == wanted:
                text = value if given else following
                return int(text) if text.isdecimal() else default
        return default


class Reader(Protocol):
    """Reads the log of one container, line by line."""

    @property
    def found(self) -> bool:
        """Whether a line that only this dialect writes was read."""

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Take in one line of any stream.

        Args:
            text: the line as the program wrote it, without its end.
            received: the runner's monotonic clock in seconds when it was read.

        Returns:
            The events that this line completed.
        """

    def close(self, *, received: float) -> tuple[Event, ...]:
        """Take note that the program ended well.

        Args:
            received: the runner's monotonic clock in seconds when it ended.

        Returns:
            The events that waited for the whole log.

        Raises:
            DialectError: no line is in this dialect, or the log lacks what the figures need.
        """


def finite(text: str) -> float | None:
    """The number that a word stands for; None where it is not finite or no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class LogReader(ABC):
    """Base of the readers: strips prefixes, remembers the first line, and keeps complaints for the end.

    Attributes:
        unit: what the log counts, in its own words.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "samples/s"

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._found = False
        self._first_line = ""
        self._fault: str | None = None

    @property
    def found(self) -> bool:
        """Whether a line that only this dialect writes was read."""
        return self._found

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Take in one line; see `Reader.feed`."""
        text = text[:LONGEST]
        self._first_line = self._first_line or text.strip()
        return tuple(self._read(untag(text.rstrip()), received))

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log; see `Reader.close`.

        Raises:
            DialectError: no line is in this dialect, or the log lacks what the figures need.
        """
        if not self._found:
            raise DialectError(self._nothing_found())
        events = tuple(self._end(received))
        if self._fault is not None:
            raise DialectError(self._fault)
        return events

    def complain(self, sentence: str) -> None:
        """Keep the first thing that is wrong with the log; `close` raises it."""
        self._fault = self._fault or sentence

    def agree(self, *, devices: int) -> None:
        """Complain when the log speaks of another number of devices than the run was asked for."""
        if devices != self.facts.devices:
            self.complain(
                f"the {self.name} log speaks of {devices} device{'s' * (devices != 1)}, the run was asked for "
                f"{self.facts.devices}; ask for as many as the command uses"
            )

    @abstractmethod
    def _read(self, line: Line, received: float) -> list[Event]:
        """Events that a line completes; sets `_found` and may complain."""

    def _nothing_found(self) -> str:
        """The sentence for a log without a line of this dialect."""
        return no_line(self._first_line, self.name)

    @abstractmethod
    def _end(self, received: float) -> list[Event]:
        """Events that waited for the whole log; may complain."""


def no_line(first_line: str, *names: str) -> str:
    """The sentence for a log that no dialect knows."""
    tried = f"the first line that was tried: {first_line[:SHOWN]!r}" if first_line else "the log is empty"
    which = f"dialect {names[0]}" if len(names) == 1 else f"any dialect ({', '.join(names)})"
    return f"no line is in {which}; {tried}; name another with --dialect, say with --pattern what to look for, or let the program write events"


class Track:
    """Makes the events of one rank and adds up what they hold."""

    def __init__(self, container: str, *, rank: int = 0) -> None:
        self._container = container
        self._rank = rank
        self._origin: float | None = None
        self._index = 0
        self._elapsed_s = 0.0
        self._iterations = 0
        self._samples = 0

    @property
    def windows(self) -> int:
        """How many windows there are."""
        return self._index

    def first_step(self, received: float) -> FirstStep:
        """The first iteration of the job is done."""
        return FirstStep(event="first_step", rank=self._rank, t=received, received=received, container=self._container)

    def warmup_end(self, received: float, *, iterations: int) -> WarmupEnd:
        """The measured iterations begin at `received`; `iterations` of the job came before."""
        self._origin = received
        return WarmupEnd(
            event="warmup_end",
            iterations=iterations,
            rank=self._rank,
            t=received,
            received=received,
            container=self._container,
        )

    def window(self, received: float, *, iterations: int, samples: int, seconds: float) -> Window:
        """The next stretch of iterations took `seconds`."""
        if self._origin is None:
            self._origin = received - seconds
        made = Window(
            event="window",
            index=self._index,
            start=self._origin + self._elapsed_s,
            iterations=iterations,
            samples=samples,
            seconds=seconds,
            rank=self._rank,
            t=received,
            received=received,
            container=self._container,
        )
        self._index += 1
        self._elapsed_s += seconds
        self._iterations += iterations
        self._samples += samples
        return made

    def loss(self, received: float, *, iteration: int, value: float | None) -> Loss:
        """The loss that the log tells of an iteration; None where it is not finite."""
        return Loss(
            event="loss",
            first_iteration=iteration,
            values=(value,),
            rank=self._rank,
            t=received,
            received=received,
            container=self._container,
        )

    def stop(self, received: float) -> RunStop:
        """The end: iterations and samples are those of the windows, the norm of the weights is in no log."""
        return RunStop(
            event="run_stop",
            iterations=self._iterations,
            samples=self._samples,
            parameter_norm=None,
            rank=self._rank,
            t=received,
            received=received,
            container=self._container,
        )
