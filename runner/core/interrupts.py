"""Handles the signals that stop a command: Ctrl-C, SIGTERM (`timeout`, a batch system) and SIGHUP (a closed terminal).

Each raises KeyboardInterrupt wherever the command is. During a run any number of them only marks the run as stopped: it shuts down in
order and writes its record, and the command reports it.
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
# Exit code of a command that any of these signals interrupted before it had results.
INTERRUPTED: Final = 128 + signal.SIGINT
_received: list[int] = []
_stopped_a_run: list[int] = []


class Stopped:
    """Whether a signal has stopped a run, and which. No `threading.Event`: the interrupted code may hold its lock."""

    by: str | None = None

    @property
    def reason(self) -> str:
        """The reason as a record states it."""
        return f"stopped by {self.by}"


def listen() -> None:
    """Make these signals raise KeyboardInterrupt, except those that this process was started to ignore (`nohup`)."""
    for number in _handled():
        signal.signal(number, _raise_interrupt)
    sys.unraisablehook = _send_again


def ignore() -> None:
    """Ignore these signals from now on: the command is done and its exit code is known."""
    for number in _handled():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stop_on_signal(stopped: Stopped) -> Iterator[None]:
    """Within the block, signals mark a run as stopped and raise nothing. Call it in the main thread."""

    def mark(number: int, _: FrameType | None) -> None:
        _received.append(number)
        _stopped_a_run.append(number)
        stopped.by = stopped.by or _NAMES[signal.Signals(number)]

    before = {number: signal.signal(number, mark) for number in _handled()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(code: int | str | None) -> tuple[int | str | None, str | None]:
    """Return the exit code for a command that would exit with `code`, and a sentence if nothing has reported the interruption yet.

    A shell expects 128 plus the signal's number. After Ctrl-C `code` is kept: it is 130, or that of a stopped run, whose record says why.
    """
    if not _received:
        return code, None
    sentence = f"stopped by {_NAMES[signal.Signals(_received[0])]}" if code == INTERRUPTED else None
    return (code if _received[0] == signal.SIGINT else 128 + _received[0]), sentence


def _handled() -> list[signal.Signals]:
    return [number for number in _NAMES if signal.getsignal(number) != signal.SIG_IGN]


def _raise_interrupt(number: int, _: FrameType | None) -> None:
    _received.append(number)
    if not _stopped_a_run:  # a second signal must not cut short the command's exit after a stopped run
        raise KeyboardInterrupt


def _send_again(lost: sys.UnraisableHookArgs) -> None:
    """Send the signal again if it interrupted a finalizer or a weak reference's callback: Python prints such errors and continues."""
    if not (_received and lost.exc_type is KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    soon = threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, _received[-1]))
    soon.daemon = True
    soon.start()
