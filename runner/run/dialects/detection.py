"""Finds out which dialect a log is in: every reader is fed until one knows a line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runner.core.events import Event
from runner.core.request import DialectName
from runner.run.dialects.base import DialectError, Facts, Reader, no_line


class AutoReader:
    """Is the first reader, in the order of the table, that knows a line of the log; `name` is its dialect, None until then."""

    def __init__(self, facts: Facts, readers: Mapping[DialectName, Callable[[Facts], Reader]]) -> None:
        self._candidates = {name: make(facts) for name, make in readers.items()}
        self._waiting: dict[DialectName, list[Event]] = {name: [] for name in readers}
        self._first_line = ""
        self.name: DialectName | None = None

    @property
    def found(self) -> bool:
        """Whether a dialect was found."""
        return self.name is not None

    def feed(self, text: str, *, received: float) -> tuple[Event, ...]:
        """Take in one line; the events of the lines before come with the one that tells the dialect."""
        self._first_line = self._first_line or text.strip()
        if self.name is not None:
            return self._candidates[self.name].feed(text, received=received)
        for name, reader in self._candidates.items():
            self._waiting[name] += reader.feed(text, received=received)
        self.name = next((name for name, reader in self._candidates.items() if reader.found), None)
        return tuple(self._waiting[self.name]) if self.name else ()

    def close(self, *, received: float) -> tuple[Event, ...]:
        """End the log.

        Raises:
            DialectError: no line is in any dialect, or the log lacks what the figures need.
        """
        if self.name is None:
            raise DialectError(no_line(self._first_line, *self._candidates))
        return self._candidates[self.name].close(received=received)
