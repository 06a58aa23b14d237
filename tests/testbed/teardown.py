"""Finds everything that a rig leaves on the machine, by name alone, and removes it, even if it is incomplete.

Processes are found in three ways, because after a kill, any one of the three may fail: by a node's network namespace (engines, ssh
sessions, containers on the host's network), by its control groups (containers without a network), and, for engines and ssh servers, by
the configuration file in their arguments.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.cluster.machine.hostfs import read_text
from runner.core.cache import cache_dir
from runner.core.errors import RunFailedError
from runner.engines.process import CommandError, run
from testbed import groups
from testbed.layout import NAMESPACES, data_directory, prefix, run_directory, uplink
from testbed.tools import tool

# `comm` of a rig's programs; the first two exec the others.
_OWN_PROGRAMS: Final = re.compile(r"setsid|nsenter|dockerd|containerd.*|sshd.*")
_NAMED: Final = 3
_ROUNDS: Final = 20
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True)
class Process:
    """A living process."""

    pid: int
    name: str
    arguments: str


@dataclass(frozen=True)
class Remains:
    """What exists of a rig."""

    processes: tuple[Process, ...] = ()
    mounts: tuple[str, ...] = ()  # mount points below its directories, topmost first
    namespaces: tuple[str, ...] = ()
    uplink: str | None = None  # the machine's interface into it; None if there is none
    groups: tuple[Path, ...] = ()  # directories of its control groups, children first
    directories: tuple[Path, ...] = ()  # of sockets and keys, and of images and containers

    def __bool__(self) -> bool:
        return any((self.processes, self.mounts, self.namespaces, self.uplink, self.groups, self.directories))

    @property
    def summary(self) -> str:
        """What exists, for an error message: only the first few, because later items exist only because of earlier ones."""
        kinds = {
            "process": [f"{process.pid} ({process.name})" for process in self.processes],
            "mount": self.mounts,
            "namespace": self.namespaces,
            "interface": [self.uplink] if self.uplink else [],
            "control group": self.groups,
            "directory": self.directories,
        }
        words = [f"{kind} {one}" for kind, found in kinds.items() for one in found]
        more = [f"{len(words) - _NAMED} more"] if len(words) > _NAMED else []
        return ", ".join(words[:_NAMED] + more)


def find(number: int) -> Remains:
    """Find everything that belongs to a rig; changes nothing."""
    group_directories = groups.of_rig(number)
    directories = _directories(number)
    namespaces = tuple(sorted(path.name for path in NAMESPACES.glob(f"{prefix(number)}*")))
    return Remains(
        processes=_processes(number, namespaces, group_directories),
        mounts=_mounts(directories),
        namespaces=namespaces,
        uplink=uplink(number) if Path("/sys/class/net", uplink(number)).exists() else None,
        groups=group_directories,
        directories=directories,
    )


def remove(number: int) -> None:
    """Remove everything that belongs to a rig, even if there is nothing or only part of it."""
    refusal = ""
    for _ in range(_ROUNDS):
        found = find(number)
        if not found:
            return
        try:
            _remove(found)
        except (CommandError, OSError) as error:  # the next round can remove what a process that just exited still held
            refusal = error.last_line if isinstance(error, CommandError) else str(error)
            time.sleep(0.1)
    found = find(number)
    if found:
        why = f" ({refusal})" if refusal else ""
        raise RunFailedError(
            f"rig {number} was not taken down, since {found.summary} can't be removed{why}; remove them by hand, then take it down again"
        )


def processes_of(namespace: str) -> tuple[Process, ...]:
    """Live processes in a network namespace."""
    inode = _inode(NAMESPACES / namespace)
    return tuple(process for process in _living() if inode is not None and _inode(_network(process.pid)) == inode)


def started_with(configuration: Path) -> tuple[Process, ...]:
    """Live processes of a rig's own programs with this file among their arguments."""
    path = re.compile(rf"(?<![\w/]){re.escape(str(configuration))}(?![\w.-])")
    return tuple(
        process for process in _living() if _OWN_PROGRAMS.fullmatch(process.name) and path.search(process.arguments)
    )


def kill(
    processes: tuple[Process, ...], *, sign: signal.Signals = signal.SIGKILL, patience_s: float = _PATIENCE_S
) -> bool:
    """Signal processes and wait for them. Returns whether all have exited."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, sign)
    deadline = time.monotonic() + patience_s
    while any(_is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _remove(found: Remains) -> None:
    if found.processes:
        groups.thaw(found.groups)
        kill(found.processes)
        return  # check again: one of them may have started another
    for mount in found.mounts:
        try:
            run((tool("umount"), mount))
        except CommandError:
            run((tool("umount"), "--lazy", mount))
    if found.uplink:  # explicitly: with its namespace, it would disappear only some time later
        run((tool("ip"), "link", "delete", found.uplink))
    for namespace in found.namespaces:
        run((tool("ip"), "netns", "delete", namespace))
    for group in found.groups:
        with contextlib.suppress(FileNotFoundError):
            group.rmdir()
    for directory in found.directories:  # never through a mount: `find` runs again after mounts are gone
        if not _mounts((directory,)):
            shutil.rmtree(directory)


def _directories(number: int) -> tuple[Path, ...]:
    """The rig's directories, images first: the other one holds the link to them."""
    here = run_directory(number)
    places = [data_directory(number, cache_dir() / "rig")]
    with contextlib.suppress(OSError):
        chosen = (here / "data").readlink()
        places += [chosen] if chosen == data_directory(number, chosen.parent) else []
    return tuple(path for path in (*dict.fromkeys(places), here) if _is_directory(path))


def _is_directory(path: Path) -> bool:
    """Whether a directory exists; if the path can't be checked, such as a name that is too long, no part of a rig is there."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _mounts(directories: tuple[Path, ...]) -> tuple[str, ...]:
    places = [_unescape(line.split()[4]) for line in (read_text(Path("/proc/self/mountinfo")) or "").splitlines()]
    inside = [place for place in places if any(Path(place).is_relative_to(directory) for directory in directories)]
    return tuple(reversed(inside))


def _unescape(text: str) -> str:
    r"""Undo the kernel's escaping of blanks in a path: `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _processes(number: int, namespaces: tuple[str, ...], group_directories: tuple[Path, ...]) -> tuple[Process, ...]:
    inodes = {_inode(NAMESPACES / namespace) for namespace in namespaces} - {None}
    grouped = groups.members(group_directories)
    here = re.compile(rf"(?<![\w/]){re.escape(str(run_directory(number)))}/")
    own = os.getpid()
    return tuple(
        process
        for process in _living()
        if process.pid != own
        and (
            process.pid in grouped
            or _inode(_network(process.pid)) in inodes
            or (_OWN_PROGRAMS.fullmatch(process.name) and here.search(process.arguments))
        )
    )


def _living() -> tuple[Process, ...]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            arguments = (read_text(entry / "cmdline") or "").replace("\0", " ")
            process = Process(pid=int(entry.name), name=read_text(entry / "comm") or "", arguments=arguments)
            if _is_alive(process):
                found.append(process)
    return tuple(found)


def _is_alive(process: Process) -> bool:
    """Whether it still runs. An exited process keeps its entry until its parent reaps it, and not every init does."""
    state = (read_text(Path("/proc", str(process.pid), "stat")) or ") X").rpartition(")")[2].split()[0]
    return state not in ("Z", "X")  # proc_pid_stat(5)


def _network(pid: int) -> Path:
    return Path("/proc", str(pid), "ns/net")


def _inode(path: Path) -> tuple[int, int] | None:
    """Identify a namespace, by device and inode."""
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino
