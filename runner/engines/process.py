"""The one place where the runner starts a process: argv tuples only, never a shell, always ended.

Used by the engines and by whatever needs a tool of the machine (git, pip, mmdebstrap). A command that fails carries its argv,
exit code and standard error.
"""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class CommandError(Exception):
    """A command ended with a non-zero code, could not be found, or ran out of time."""

    def __init__(self, argv: Sequence[str], code: int | None, stderr: str) -> None:
        super().__init__(f"{' '.join(argv)} ended with {code}: {stderr.strip()[-2000:]}")
        self.argv = tuple(argv)
        self.code = code
        self.stderr = stderr

    @property
    def last_line(self) -> str:
        """The last line that the command wrote to standard error, for an error sentence."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run a command to its end and return its standard output.

    Args:
        argv: the program and its arguments, handed to the kernel as they are.
        env: the whole environment; the runner's own when None.
        cwd: working directory.
        timeout_s: seconds after which the command is killed.

    Raises:
        CommandError: not found, a non-zero exit code, or out of time.
    """
    try:
        done = subprocess.run(
            list(argv),
            env=env,
            cwd=cwd,
            timeout=timeout_s,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise CommandError(argv, None, f"{argv[0]}: not found") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(argv, None, f"no end after {timeout_s} s") from error
    if done.returncode != 0:
        raise CommandError(argv, done.returncode, done.stderr or done.stdout)
    return done.stdout


def follow(
    argv: Sequence[str],
    *,
    on_line: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a command to its end and hand over each line as it is written, standard output and error as one.

    Args:
        argv: the program and its arguments, handed to the kernel as they are.
        on_line: called with each line, without its end.
        env: the whole environment; the runner's own when None.
        cwd: working directory.

    Raises:
        CommandError: not found, or a non-zero exit code; it carries the last lines.
    """
    last: deque[str] = deque(maxlen=100)
    try:
        process = subprocess.Popen(
            list(argv),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise CommandError(argv, None, f"{argv[0]}: not found") from error
    with process:  # closes the pipe and waits, whatever happens below
        try:
            for line in process.stdout or ():
                last.append(line.rstrip("\n"))
                on_line(last[-1])
        except BaseException:
            process.kill()  # Ctrl-C, or a fault in `on_line`: the command must not go on alone
            raise
    if process.returncode != 0:
        raise CommandError(argv, process.returncode, "\n".join(last))
