"""What ends a command from outside: Ctrl-C, SIGTERM (`timeout`, a batch system) and SIGHUP (a terminal that is closed).

Each raises KeyboardInterrupt wherever the command is. While a run is under way they only mark it as stopped, however many come: it ends in
order and leaves its record, and the command tells of it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NAMES: Final = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
# What a command that was interrupted before it had anything to show ends with, whatever it was interrupted by.
INTERRUPTED: Final = 128 + signal.SIGINT
_came: list[int] = []
_stopped_a_run: list[int] = []


class Stopped:
    """Whether a run is to end before its time, and by what. No `threading.Event`: its lock may be held by whom the signal interrupts."""

    by: str | None = None

    @property
    def reason(self) -> str:
        """In words, for a record."""
        return f"stopped by {self.by}"


def listen() -> None:
    """Have all of them raise KeyboardInterrupt, but for those that whoever started this process has it ignore (`nohup`)."""
    for number in _heeded():
        signal.signal(number, _interrupt)
    sys.unraisablehook = _again


def ignore() -> None:
    """Have none of them do anything: what the command had to do is done, and its exit code is known."""
    for number in _heeded():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held(stopped: Stopped) -> Iterator[None]:
    """Have them mark a run as stopped and raise nothing, for as long as the block lasts; of the main thread."""

    def mark(number: int, _: FrameType | None) -> None:
        _came.append(number)
        _stopped_a_run.append(number)
        stopped.by = stopped.by or _NAMES[signal.Signals(number)]

    before = {number: signal.signal(number, mark) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended(code: int | str | None) -> tuple[int | str | None, str | None]:
    """What a command that would exit with `code` exits with, and a sentence where nothing else has said that it was stopped.

    A shell expects 128 and the signal's number; after Ctrl-C a run's record says it, and the code with it.
    """
    if not _came:
        return code, None
    said = f"stopped by {_NAMES[signal.Signals(_came[0])]}" if code == INTERRUPTED else None
    return (code if _came[0] == signal.SIGINT else 128 + _came[0]), said


def _heeded() -> list[signal.Signals]:
    return [number for number in _NAMES if signal.getsignal(number) != signal.SIG_IGN]


def _interrupt(number: int, _: FrameType | None) -> None:
    _came.append(number)
    if not _stopped_a_run:  # or the command is at its end already, which an impatient second one would cut off
        raise KeyboardInterrupt


def _again(lost: sys.UnraisableHookArgs) -> None:
    """Raise once more what fell into a finalizer or a weak reference's callback, where Python prints it and goes on."""
    if not (_came and lost.exc_type is KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    soon = threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, _came[-1]))
    soon.daemon = True
    soon.start()
