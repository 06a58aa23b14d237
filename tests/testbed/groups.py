"""The control groups of nodes: they keep a node's containers on its cores, and name every process that a container of it ever started.

Docker puts the containers of a node below the node's group; the processors are set before, and handed down to whatever is made in it.
cgroups(7): under v1 a group of that name is in every hierarchy, under v2 in the one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.cluster.machine.hostfs import controller_mounts, read_text
from testbed.layout import RigNode, prefix


class Hierarchy(NamedTuple):
    """Where a hierarchy of control groups is mounted."""

    root: Path
    unified: bool


def hierarchies(sys_root: Path = Path("/")) -> tuple[Hierarchy, ...]:
    """Every hierarchy that this process sees below `sys_root` (a made-up tree in tests)."""
    mounts = controller_mounts(sys_root).items()
    return tuple(dict.fromkeys(Hierarchy(place, unified=controller == "") for controller, (_, place) in mounts))


def confine(node: RigNode, *, sys_root: Path = Path("/")) -> bool:
    """Make the group that keeps a node's containers on its cores; False where the machine does not allow it and nodes share all cores."""
    for hierarchy in hierarchies(sys_root):
        try:
            if hierarchy.unified:
                if "cpuset" not in (read_text(hierarchy.root / "cgroup.controllers") or "").split():
                    continue
                (hierarchy.root / "cgroup.subtree_control").write_text("+cpuset")
            elif not (hierarchy.root / "cpuset.cpus").exists():
                continue
            group = hierarchy.root / node.namespace
            group.mkdir(exist_ok=True)
            if not hierarchy.unified:  # under v1 a group without memory nodes takes no process
                (group / "cpuset.mems").write_text(read_text(hierarchy.root / "cpuset.mems") or "0")
            (group / "cpuset.cpus").write_text(",".join(map(str, node.cores)))
        except OSError:
            return False
        return True
    return False


def of_rig(number: int) -> tuple[Path, ...]:
    """The directories of all groups of a rig's nodes, in every hierarchy, groups before those that they are in."""
    return tuple(
        Path(directory)
        for hierarchy in hierarchies()
        for group in _named(hierarchy.root, prefix(number))
        for directory, _, _ in os.walk(group, topdown=False)
    )


def members(groups: tuple[Path, ...]) -> set[int]:
    """Ids of the processes in groups."""
    return {int(pid) for group in groups for pid in (read_text(group / "cgroup.procs") or "").split()}


def thaw(groups: tuple[Path, ...]) -> None:
    """Let paused containers go on: under v1 a frozen process can't be killed."""
    for group in groups:
        state = group / "freezer.state"
        if state.exists():
            with contextlib.suppress(OSError):
                state.write_text("THAWED")


def _named(root: Path, beginning: str) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (entry for entry in root.iterdir() if entry.name.startswith(beginning) and entry.is_dir())
