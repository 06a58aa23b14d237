"""Processes that go on without the runner, and one that outlives it just long enough to clear up after it.

A daemon gets a session of its own and init as its parent, so that neither Ctrl-C nor the runner's end reaches it; whoever starts
one must be able to find it again by its arguments.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from runner.engines.process import CommandError

TESTS = Path(__file__).parents[1]


def start(argv: Sequence[str], *, log: Path) -> None:
    """Start a daemon; what it writes is appended to `log`.

    Raises:
        CommandError: there is no `setsid`. That the daemon itself does not start is written to its log.
    """
    with log.open("ab") as file:
        try:
            subprocess.run(
                ["setsid", "--fork", *argv],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd="/",  # a daemon must not hold the directory that it was started from
                check=False,
            )
        except FileNotFoundError as error:
            raise CommandError(argv, None, "setsid: not found") from error


class Keeper:
    """A process that acts when the runner lets go of it or dies, even by kill -9: it waits for the end of its standard input."""

    def __init__(self, argv: Sequence[str], *, hold: Sequence[int] = ()) -> None:
        """Start it.

        Args:
            argv: the program and its arguments.
            hold: open files that it holds too, such as a lock.
        """
        self._argv = tuple(argv)
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=tuple(hold),
            start_new_session=True,  # out of reach of Ctrl-C, which goes to the whole foreground
            cwd="/",
            env={**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"},
            text=True,
        )

    def release(self) -> None:
        """Let it act, and wait for its end.

        Raises:
            CommandError: it ended with a non-zero code.
        """
        _, said = self._process.communicate()
        if self._process.returncode:
            raise CommandError(self._argv, self._process.returncode, said)
