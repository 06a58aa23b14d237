"""A rig that goes down with the process that wanted it, however that ends: for tests, each session with a rig of its own number."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.core.errors import RequestError, RunFailedError
from runner.core.wire import Link
from runner.engines.process import CommandError
from testbed import remains
from testbed.daemon import Keeper
from testbed.layout import RUN, TESTS, Second
from testbed.rig import Rig
from testbed.tools import refuse_unfit


@contextlib.contextmanager
def leased(
    *,
    nodes: int,
    link: Link | None = None,
    second: Second = "none",
    parent: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Rig]:
    """Bring up a rig of a number that nobody holds; it goes down with the context, and with this process at kill -9.

    Raises:
        RequestError: no number is free, or this machine can't have a rig.
        RunFailedError: it did not go down.
    """
    refuse_unfit()
    number, lock = _take_number()
    # Before the rig, which a kill could leave half made. The keeper holds the number until it has taken the rig down.
    keeper = Keeper((sys.executable, "-m", "testbed.keeper", str(number)), hold=(lock,))
    os.close(lock)
    try:
        yield Rig.up(nodes=nodes, number=number, link=link, second=second, parent=parent, report=report)
    finally:
        try:
            keeper.release()
        except CommandError as error:
            raise RunFailedError(error.last_line) from error


def lock_path(number: int) -> Path:
    """The lock of a rig's number; it stays behind, for a lock that is deleted locks nobody out."""
    RUN.mkdir(mode=0o700, exist_ok=True)
    return RUN / f"{number}.lock"


def remove_stale(report: Callable[[str], None]) -> None:
    """Take down what is left of tests' rigs that nobody holds: their keepers were killed too.

    Raises:
        RunFailedError: something does not go; the sentence names it.
    """
    for number in TESTS:
        lock = _try_number(number) if lock_path(number).exists() else None
        if lock is None:
            continue
        try:
            if remains.find(number):
                report(f"taking rig {number} of a killed test down")
                remains.remove(number)
        finally:
            os.close(lock)


def _take_number() -> tuple[int, int]:
    """A free number, and the open file that locks it."""
    for number in TESTS:
        lock = _try_number(number)
        if lock is not None:
            return number, lock
    raise RequestError(
        f"rigs {TESTS[0]} to {TESTS[-1]} are all in use on this machine; wait for the tests that use them to end"
    )


def _try_number(number: int) -> int | None:
    file = os.open(lock_path(number), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
