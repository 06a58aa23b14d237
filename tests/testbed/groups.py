"""The control groups of nodes: they keep a node's containers on its cores, and list every process that one of its containers started.

Docker puts a node's containers below the node's group, which already has its CPUs and passes them on to every group created in it.
cgroups(7): under v1 the group exists in every hierarchy, under v2 in the only one.
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
    """A mounted hierarchy of control groups."""

    root: Path
    unified: bool


def hierarchies(sys_root: Path = Path("/")) -> tuple[Hierarchy, ...]:
    """List the hierarchies mounted below `sys_root` (in tests, a made-up tree)."""
    mounts = controller_mounts(sys_root).items()
    return tuple(dict.fromkeys(Hierarchy(place, unified=controller == "") for controller, (_, place) in mounts))


def confine(node: RigNode, *, sys_root: Path = Path("/")) -> bool:
    """Create the group that keeps a node's containers on its cores; False if the machine forbids it, and nodes share all cores."""
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
            if not hierarchy.unified:  # under v1, no process can join a group without memory nodes
                (group / "cpuset.mems").write_text(read_text(hierarchy.root / "cpuset.mems") or "0")
            (group / "cpuset.cpus").write_text(",".join(map(str, node.cores)))
        except OSError:
            return False
        return True
    return False


def of_rig(number: int) -> tuple[Path, ...]:
    """Directories of all groups of a rig's nodes, in every hierarchy, children before parents."""
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
    """Resume paused containers: under v1, a frozen process can't be killed."""
    for group in groups:
        state = group / "freezer.state"
        if state.exists():
            with contextlib.suppress(OSError):
                state.write_text("THAWED")


def _named(root: Path, beginning: str) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (entry for entry in root.iterdir() if entry.name.startswith(beginning) and entry.is_dir())
