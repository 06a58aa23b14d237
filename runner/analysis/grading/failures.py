"""Why runs fail: the last lines of a log → one sentence with the rank, its exit code, the cause if known, and its last output."""

from __future__ import annotations

import re
import signal
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from runner.core.errors import printable
from runner.core.events.parse import untag

# Exit codes of a process killed by SIGKILL: 128 + 9 from a shell, -9 from Python's launchers.
KILLED: Final = (137, -9)
# ssh's message when it loses a connected node; the launcher that started ranks there learns only ssh's exit code, 255.
LOST: Final = (
    r"^(Connection to \S+ closed by remote host|Timeout, server \S+ not responding|client_loop: send disconnect)"
)
LAST_LINES: Final = 3
SMALLER: Final = "; try a smaller BATCH"
"""Next step for a rank that ran out of memory; left out if the program has no batch."""
LONGEST_LINE: Final = 200


class Cause(NamedTuple):
    """A cause of failure, and a pattern of the line that shows it; the first match wins."""

    reason: str
    pattern: str


CAUSES: Final = (
    Cause("ssh lost a node in mid-run; see whether it is up and its cable in", LOST),
    Cause(
        "ssh could not log in to a node's container; see whether its own log says why",
        r"^ssh: (connect to host|Could not resolve hostname) |^\S+@\S+: Permission denied \(|^Host key verification failed",
    ),
    Cause(
        "NCCL found no interface of the name that it was given; name one of each node with IFACE or in the hosts file",
        r"(?i)no socket interface found",
    ),
    Cause(
        "the adapter could not pin memory; the engine has to allow it: start dockerd with --default-ulimit memlock=-1",
        r"ibv_(reg_mr|create_cq|create_qp)\S* .*Cannot allocate memory",
    ),
    Cause(
        f"the device ran out of memory{SMALLER}", r"(?i)CUDA out of memory|OutOfMemoryError|cudaMalloc.*out of memory"
    ),
    Cause(
        f"the process ran out of memory{SMALLER}",
        r"(?i)MemoryError|Cannot allocate memory|DefaultCPUAllocator: can't allocate|: Out Of Memory$|oom_kill event",
    ),
    Cause(
        "the image has no code for this GPU; `dlscale doctor` names images that do",
        r"(?i)no kernel image is available|not compiled with.*sm_\d+",
    ),
    Cause(
        "the driver is too old for the image's CUDA; `dlscale doctor` names images that fit",
        r"(?i)driver version is insufficient|forward compatibility was attempted",
    ),
    Cause("NCCL could not move data between the ranks", r"NCCL (error|WARN)|ncclSystemError|ncclUnhandledCudaError"),
    Cause("shared memory ran out", r"(?i)No space left on device.*shm|insufficient shared memory|bus error"),
    Cause(
        "the image has no such program; install it there, or add its folder to the image's PATH",
        r"^lease: \S+: No such file or directory",
    ),
    Cause(
        "a step could not be started there; `scontrol show node` and slurmd's log say more",
        r"^srun: error: (Unable to create step|Task launch for|Application launch failed)",
    ),
    Cause("the program could not import a module", r"^(ModuleNotFoundError|ImportError): .*"),
)


class Failure(NamedTuple):
    """A failed rank; a negative exit code is the signal that killed it."""

    rank: int
    exit_code: int


# torchrun's report of failed ranks, in which the first to fail comes last.
_TORCHRUN: Final = re.compile(r"^ *rank +: (?P<rank>\d+) .*\n(?:.*\n)?? *exitcode +: (?P<code>-?\d+)", re.MULTILINE)
# Reports of launchers that name the first rank to fail first.
_LAUNCHERS: Final = (
    re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>-?\d+)", re.MULTILINE),  # horovodrun --gloo
    re.compile(
        r"noticed that process rank (?P<rank>\d+) with .* exited on signal (?P<signal>\d+)", re.DOTALL
    ),  # mpirun
    re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\s+Exit code: +(?P<code>-?\d+)"),  # mpirun
    re.compile(r"^tf_workers: worker (?P<rank>\d+) ended with exit code (?P<code>-?\d+)", re.MULTILINE),
)


def explain(
    exit_code: int, last_lines: Sequence[str], *, last_events: Mapping[int, str] | None = None, trains: bool = True
) -> str:
    """Say why a container failed whose main process exited with `exit_code`.

    `last_lines` carry rank tags if a launcher adds them; `last_events` are by rank, as far as received; a program that `trains` may need
    less memory with a smaller batch.
    """
    events = last_events or {}
    # ssh ends its lines with CR and LF, and horovodrun tags the text after each.
    found = [untag(printable(part)) for line in last_lines for part in line.split("\r")]
    lost = {line.rank for line in found if line.rank is not None and re.match(LOST, line.message)}
    failure = _first_failure([line.text for line in found if line.rank is None], lost)
    if failure is None and len(events) == 1:
        failure = Failure(next(iter(events)), exit_code)
    prefix = f"rank {failure.rank}: " if failure else ""
    code = failure.exit_code if failure else exit_code
    # A launcher tags each rank's lines; without one, all lines are the rank's own.
    own_lines = [line.message for line in found if failure and line.rank == failure.rank] or [
        line.message for line in found
    ]
    event = f"; its last event was {events[failure.rank]}" if failure and failure.rank in events else ""
    said = event + _last_words(own_lines)
    smaller = SMALLER if trains else ""
    for cause in CAUSES:
        for line in reversed(own_lines):
            if match := re.search(cause.pattern, line):
                reason = cause.reason.replace(SMALLER, smaller)
                return f"{prefix}{reason} ({match.string.strip()[:LONGEST_LINE]})"
    if code in KILLED:
        return (
            f"{prefix}killed (exit code {code}, SIGKILL), by hand or by the kernel at its memory limit{smaller}{said}"
        )
    return f"{prefix}exit code {code}{_signal_name(code)}{said}"


def _first_failure(lines: Iterable[str], lost: Container[int]) -> Failure | None:
    """The first rank to fail, as the launcher reports; a rank killed from outside precedes those that failed in consequence.

    `lost` are ranks that were cut off with their node.
    """
    text = "\n".join(lines)
    found = [_failures(_TORCHRUN, text)[::-1], *(_failures(pattern, text) for pattern in _LAUNCHERS)]
    failures = next((failures for failures in found if failures), [])
    from_outside = (failure for failure in failures if failure.exit_code in KILLED or failure.rank in lost)
    return next(from_outside, failures[0] if failures else None)


def _failures(pattern: re.Pattern[str], text: str) -> list[Failure]:
    ends = [match.groupdict() for match in pattern.finditer(text)]
    return [Failure(int(end["rank"]), int(end["code"]) if "code" in end else -int(end["signal"])) for end in ends]


def _signal_name(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


def _last_words(lines: Sequence[str]) -> str:
    words = [line.strip()[:LONGEST_LINE] for line in lines if line.strip()][-LAST_LINES:]
    return f"; it last said: {' / '.join(words)}" if words else ""
