"""A log of one of the suite's own programs, which writes events for all but its speed and its losses. Pure."""

from __future__ import annotations

from runner.core.events import Event, Loss, Window
from runner.run.dialects.base import Reader


class FiguresReader:
    """Keeps the losses and the measured windows that another reader finds; where a run begins and ends, the program itself says.

    `iterations` are measured; the log may go on after them.
    """

    def __init__(self, reader: Reader, *, iterations: int) -> None:
        self._reader = reader
        self._left = iterations

    @property
    def found(self) -> bool:
        """Whether a line of the dialect was read."""
        return self._reader.found

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Take in one line; see `Reader.feed`."""
        return self._kept(self._reader.feed(text, received=received))

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log; see `Reader.close`."""
        return self._kept(self._reader.close(received=received))

    def _kept(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        found: list[Event] = []
        for event in events:
            if isinstance(event, Window):
                if event.iterations <= self._left:
                    found.append(event)
                self._left -= event.iterations
            elif isinstance(event, Loss):
                found.append(event)
        return tuple(found)
