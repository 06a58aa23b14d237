"""Starts processes for the engines, and for everything that needs a tool of the machine (git, pip, mmdebstrap, ssh).

Every process gets an argv, never a shell's line, and is always ended. The error of a failed command carries its argv, exit code and stderr.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NoReturn

import runner
from runner.core.errors import RequestError
from runner.core.provenance import Git
from runner.engines.base import EngineFacts

LEASE: Final = Path(runner.__file__).parents[1] / "workloads" / "lease.py"
_END_S: Final = 8.0
_POLL_S: Final = 0.02
# /proc/net/unix: Num RefCount Protocol Flags Type St Inode Path; __SO_ACCEPTCON of include/uapi/linux/net.h.
_PATH: Final = 7
_ACCEPTS: Final = 1 << 16


class CommandError(Exception):
    """A command exited non-zero, could not be found, or timed out."""

    def __init__(self, argv: Sequence[str], code: int | None, stderr: str) -> None:
        super().__init__(f"{' '.join(argv)} ended with {code}: {stderr.strip()[-2000:]}")
        self.argv = tuple(argv)
        self.code = code
        self.stderr = stderr

    @property
    def last_line(self) -> str:
        """The last line of the command's stderr, or of stdout if that is empty, else the exit code; for an error sentence."""
        return last_line(self.stderr) or f"exit code {self.code}"


def last_line(text: str) -> str:
    """The last non-blank line, stripped; empty if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run a command, kill it after `timeout_s`, and return its stdout; `env` is the whole environment. Raises CommandError."""
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
    except (FileNotFoundError, PermissionError) as error:  # the second if PATH has a folder closed to this user
        raise CommandError(argv, None, f"{argv[0]}: not found") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(argv, None, f"no end after {timeout_s} s") from error
    if done.returncode != 0:
        raise CommandError(argv, done.returncode, done.stderr or done.stdout)
    return done.stdout


def become(argv: Sequence[str]) -> NoReturn:
    """Replace this process with a command; raises RequestError if the program can't be run."""
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606 - a tuple, no shell
    except OSError as error:
        raise RequestError(f"{argv[0]} does not run here ({error.strerror}); run this on a host that has it") from error


def on_path(name: str) -> Iterator[Path]:
    """Every program of this name, in PATH order."""
    for folder in os.get_exec_path():
        path = Path(folder).absolute() / name
        # In this order: `is_file` raises below a folder that this user may not enter.
        if os.access(path, os.X_OK) and path.is_file():
            yield path


def follow(
    argv: Sequence[str],
    *,
    on_line: Callable[[str], None],
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a command and pass on each line as it is written, stdout and stderr merged. Raises CommandError."""
    tail: deque[str] = deque(maxlen=100)
    try:
        process = subprocess.Popen(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except (FileNotFoundError, PermissionError) as error:  # the second if PATH has a folder closed to this user
        raise CommandError(argv, None, f"{argv[0]}: not found") from error
    with process:  # closes the pipe and waits, whatever happens below
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip("\n"))
                on_line(tail[-1])
        except BaseException:
            process.kill()  # Ctrl-C, or an error in `on_line`: the command must not continue alone
            raise
    if process.returncode != 0:
        raise CommandError(argv, process.returncode, "\n".join(tail))


@contextmanager
def when_killed(argv: Sequence[str]) -> Iterator[None]:
    """Run a command if this process is killed within the block; if the block is left in any other way, never.

    A shell at the other end of a pipe waits for that, as a lease does, in a session of its own that no Ctrl-C reaches.
    """
    process = subprocess.Popen(
        ("sh", "-c", 'read -r _ || exec "$@"', "sh", *argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.communicate(b"\n")


class Tunnel:
    """A process that forwards a socket of another machine to this one (`ssh -N -L`), and ends when the runner does.

    It runs under the same lease as jobs. The kernel's parent-death signal would not do: it fires when the *thread* that started the
    child ends (prctl(2)), and connections are opened by short-lived threads.

    Attributes:
        socket: the near end; connections to it come out on the other machine.
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
    def stderr(self) -> str:
        """Everything that the process has written to stderr so far."""
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
    """Start a tunnel and wait until its near end accepts connections.

    Args:
        argv: the program and its arguments; it creates `socket` once the other machine has let it in.
        socket: in a private folder of its own, which also gets the program's log.
        timeout_s: seconds to wait for `socket`.

    Raises:
        CommandError: the program is not installed, exited, or did not create the socket in time; with its stderr.
    """
    log = socket.with_suffix(".log")
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(LEASE), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C reaches the runner alone, which then still needs its engines
        )
    tunnel = Tunnel(process, socket=socket, log=log)
    try:
        _await(tunnel, argv, timeout_s)
    except BaseException:
        tunnel.close()
        raise
    return tunnel


def _await(tunnel: Tunnel, argv: Sequence[str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not _is_listening(tunnel.socket):
        if tunnel.ended:
            raise CommandError(argv, None, tunnel.stderr)
        if time.monotonic() > deadline:
            raise CommandError(argv, None, f"{tunnel.stderr}\nno answer after {timeout_s:g} s")
        time.sleep(_POLL_S)


def _is_listening(socket: Path) -> bool:
    """Whether a socket accepts connections: its file exists from bind(2) on, but it refuses them until listen(2)."""
    if not socket.exists():
        return False
    rows = (line.split() for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines())
    return any(row[-1] == str(socket) and int(row[3], 16) & _ACCEPTS for row in rows if len(row) > _PATH)


def read_git(checkout: Path) -> Git:
    """Read commit, state and branch of a checkout."""
    try:
        commit = run(["git", "-C", str(checkout), "rev-parse", "HEAD"], timeout_s=10).strip()
        # Records written to the checkout are not part of the code that ran.
        changes = run(["git", "-C", str(checkout), "status", "--porcelain", "--", ":!results"], timeout_s=30)
        branch = run(["git", "-C", str(checkout), "rev-parse", "--abbrev-ref", "HEAD"], timeout_s=10).strip()
    except CommandError:  # git is not installed, this is no checkout, or another user owns it
        return Git(commit=None, dirty=None, branch=None)
    return Git(commit=commit, dirty=bool(changes.strip()), branch=None if branch == "HEAD" else branch)


Program = Literal["apptainer", "podman"]
PROGRAMS: Final[tuple[Program, ...]] = ("apptainer", "podman")
_ANSWER_S: Final = 10


def ask_here(argv: Sequence[str]) -> str:
    """Run a short command on this machine."""
    return run(argv, timeout_s=_ANSWER_S)


def find_program(program: Program | Literal["srun"], ask: Callable[[Sequence[str]], str] = ask_here) -> EngineFacts:
    """A program's version where `ask` runs it, or why it does not run; never raises a CommandError."""
    try:
        output = ask((program, "--version"))
    except CommandError as error:
        return EngineFacts(
            name="slurm" if program == "srun" else program,
            available=False,
            reason=f"{program} does not run ({error.last_line})",
        )
    return EngineFacts(name="slurm" if program == "srun" else program, available=True, version=output.split()[-1])
