"""A rig that goes down with the process that leased it, however that ends: for tests, one rig number per session.

`python -m testbed.lease NUMBER` is the reaper: it takes the rig down when its standard input closes, which happens when the process with the
other end exits, even by kill -9.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from runner.core.errors import DlscaleError, RequestError, RunFailedError
from runner.core.wire import Link
from testbed import teardown
from testbed.layout import RUN, TESTS, Second
from testbed.rig import Rig
from testbed.tools import refuse_unfit

_TESTS: Final = Path(__file__).parents[1]
# Processes that a killed one had just started may not be visible yet.
_SETTLE_S: Final = 0.5


@contextlib.contextmanager
def leased(
    *,
    nodes: int,
    link: Link | None = None,
    second: Second = "none",
    parent: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Rig]:
    """Bring up a rig with a free number; it goes down with the context, and with this process even on kill -9."""
    refuse_unfit()
    number, lock = _take_number()
    # Started before the rig, which a kill could leave half built. The reaper holds the number until the rig is down.
    reaper = subprocess.Popen(
        (sys.executable, "-m", "testbed.lease", str(number)),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(lock,),
        start_new_session=True,  # not in the foreground process group, so that Ctrl-C does not reach it
        cwd="/",
        env={**os.environ, "PYTHONPATH": f"{_TESTS.parent}{os.pathsep}{_TESTS}"},
        text=True,
    )
    os.close(lock)
    try:
        yield Rig.up(nodes=nodes, number=number, link=link, second=second, parent=parent, report=report)
    finally:
        _, said = reaper.communicate()
        if reaper.returncode:
            raise RunFailedError(said.strip().rpartition("\n")[2])


def reap(number: int) -> int:
    """Wait until standard input closes, then remove the rig. Returns 3, and writes what is left to standard error, if removal fails."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ending a whole session must leave nothing behind
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.stdin.read()
    try:
        teardown.remove(number)
        time.sleep(_SETTLE_S)
        teardown.remove(number)
    except DlscaleError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def lock_path(number: int) -> Path:
    """The lock of a rig's number; it is never deleted, because a deleted lock locks nobody out."""
    RUN.mkdir(mode=0o700, exist_ok=True)
    return RUN / f"{number}.lock"


def remove_stale(report: Callable[[str], None]) -> None:
    """Take down tests' rigs that nobody holds: their reapers were killed too."""
    for number in TESTS:
        lock = _try_number(number) if lock_path(number).exists() else None
        if lock is None:
            continue
        try:
            if teardown.find(number):
                report(f"taking rig {number} of a killed test down")
                teardown.remove(number)
        finally:
            os.close(lock)


def _take_number() -> tuple[int, int]:
    """Lock a free number; return it and the open lock file."""
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


if __name__ == "__main__":
    sys.exit(reap(int(sys.argv[1])))
