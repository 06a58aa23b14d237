"""Which runner something belongs to, and whether that runner is gone: written on all that a runner leaves in engines and folders.

It is certain only of runners that share this one's kernel, since it booted, and its view of processes. Of any other (another host, another
PID namespace, a reboot ago) nothing is known, and nothing is guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from runner.core.container_spec import LABEL_RUNNER

State = Literal["alive", "gone", "unknown"]

_PROC: Final = Path("/proc")
_OWNER: Final = re.compile(r"(?P<place>[0-9a-f-]{36}\.\d+\.\d+)\.(?P<pid>\d{1,9})\.(?P<started>\d+)")


def own() -> str | None:
    """What tells this process from all others that ever were: boot, namespaces, process id and start; None where /proc does not say."""
    place = _place()
    try:
        return place and f"{place}.{os.getpid()}.{_process(os.getpid())[1]}"
    except (OSError, IndexError):
        return None


def signed(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of something that this process makes in an engine, with whose it is: no plan can know that, so engines add it."""
    mine = own()
    return {**labels, LABEL_RUNNER: mine} if mine else dict(labels)


def state(owner: str | None) -> State:
    """Whether a runner still lives, by what it wrote on its things."""
    found = _OWNER.fullmatch(owner or "")
    if found is None or found["place"] != _place():
        return "unknown"
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass  # somebody else's, so it is there
    try:
        status, started = _process(pid)
    except (OSError, IndexError):  # /proc may hide others' processes (`hidepid`)
        return "unknown"
    # One that was killed stays a zombie until its parent asks; a number is given again.
    return "alive" if started == found["started"] and status not in "ZX" else "gone"


def _place() -> str | None:
    """This kernel since it booted, and the namespaces that process ids and start times are counted in."""
    try:
        if (_PROC / "self").readlink().name != str(os.getpid()):  # a /proc of another PID namespace
            return None
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{_namespace('pid')}.{_namespace('time')}"
    except OSError:
        return None


def _namespace(kind: str) -> int:
    """Its number; 0 where the kernel has none of its kind (time: from Linux 5.6)."""
    path = _PROC / "self/ns" / kind
    return path.stat().st_ino if path.exists() else 0


def _process(pid: int) -> tuple[str, str]:
    """A process' state, and its start in clock ticks since boot: proc(5), fields 3 and 22 of `stat`."""
    words = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return words[0], words[19]
