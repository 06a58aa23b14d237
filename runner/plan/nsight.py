"""Looks for Nsight Compute on this machine, and whether the driver lets ordinary users read the GPU's counters. Starts nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runner.cluster.machine.hostfs import read_text
from runner.plan.counting import Nsight

PARAMETERS: Final = "proc/driver/nvidia/params"
# Where NVIDIA's packages put it: its own, and the CUDA toolkit's.
INSTALLATIONS: Final = ("opt/nvidia/nsight-compute/*", "usr/local/cuda*/nsight-compute*")


def find_nsight(*, sys_root: Path = Path("/"), path: str | None = None, root: bool | None = None) -> Nsight:
    """Describe what this machine has: the `ncu` of PATH before all others, else that of the newest installation.

    Args:
        sys_root: root of the tree that is looked at; a made-up one in tests.
        path: where programs are looked for; PATH itself when None.
        root: whether the suite runs as root; asked when None.
    """
    found = shutil.which("ncu", path=path)
    own = Path(found).resolve().parent if found else None
    folders = [own] if own and _complete(own) else sorted(_installations(sys_root), key=_version)
    folder = folders[-1] if folders else None
    return Nsight(
        program=found or (str(folder / "ncu") if folder else None),
        folder=str(folder) if folder else None,
        admin_only=_admin_only(sys_root),
        root=os.geteuid() == 0 if root is None else root,
    )


def _installations(sys_root: Path) -> Iterator[Path]:
    return (folder.resolve() for pattern in INSTALLATIONS for folder in sys_root.glob(pattern) if _complete(folder))


def _complete(folder: Path) -> bool:
    """Whether a folder has the program and what it injects into others; `bin/ncu` of a CUDA toolkit only calls one that does."""
    return os.access(folder / "ncu", os.X_OK) and (folder / "target").is_dir()


def _version(folder: Path) -> tuple[int, ...]:
    """`nsight-compute-2025.3.0` as (2025, 3, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", folder.name))


def _admin_only(sys_root: Path) -> bool | None:
    """The driver's own word; None without a driver, or where it does not say."""
    match = re.search(r"^RmProfilingAdminOnly: (\d)", read_text(sys_root / PARAMETERS) or "", re.MULTILINE)
    return None if match is None else match[1] != "0"
