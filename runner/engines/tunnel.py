"""A process that carries one socket of another machine to this one (`ssh -N -L`), and ends when the runner does.

It runs under the lease that jobs run under. The kernel's own parent-death signal would not do from here: it goes off when the
*thread* that started the child ends (prctl(2)), and connections are opened by threads that come and go.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import runner
from runner.engines.process import CommandError

LEASE: Final = Path(runner.__file__).parents[1] / "workloads" / "lease.py"
_END_S: Final = 8.0
_POLL_S: Final = 0.02


class Tunnel:
    """A tunnel that stands: connections to `socket` come out on the other machine.

    Attributes:
        socket: the near end.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, socket: Path, log: Path) -> None:
        self.socket = socket
        self._process = process
        self._log = log

    @property
    def ended(self) -> bool:
        """Whether the process has ended, and the tunnel with it."""
        return self._process.poll() is not None

    @property
    def words(self) -> str:
        """All that the process wrote to standard error until now."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:  # closed, and its folder removed
            return ""

    def close(self) -> None:
        """End the process. Safe to call twice and after the end."""
        if self._process.stdin:
            self._process.stdin.close()  # the lease
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_tunnel(argv: Sequence[str], *, socket: Path, timeout_s: float) -> Tunnel:
    """Start a tunnel and wait until its near end is there.

    Args:
        argv: the program and its arguments; it makes `socket` once the other machine has let it in.
        socket: in a folder of its own, which nobody else may enter; what the program says is kept in the same folder.
        timeout_s: seconds to wait for `socket`.

    Raises:
        CommandError: the program is not installed, ended, or has not made the socket in time; with what it said.
    """
    log = socket.with_suffix(".log")
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(LEASE), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C reaches the runner alone, which then still needs its engines
        )
    tunnel = Tunnel(process, socket=socket, log=log)
    try:
        _wait(tunnel, argv, timeout_s)
    except BaseException:
        tunnel.close()
        raise
    return tunnel


def _wait(tunnel: Tunnel, argv: Sequence[str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not tunnel.socket.exists():
        if tunnel.ended:
            raise CommandError(argv, None, tunnel.words)
        if time.monotonic() > deadline:
            raise CommandError(argv, None, f"{tunnel.words}\nno answer after {timeout_s:g} s")
        time.sleep(_POLL_S)
