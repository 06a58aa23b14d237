"""Measured trials → the profiling passes that follow them, and the reader of the hardware counters in passes of kind `metrics`.

A pass is a separate run, so that a profiler's overhead is in no figure. It trains the same model on the same devices and shares the key of
the measured trials, but is never a baseline.

Nsight Compute reads the counters of each kernel, but runs it alone, several times. The sampler's GPM or DCGM has only averages over time, but
disturbs nothing. Nsight Compute is used wherever it works; otherwise the record has the reason. `find_nsight` searches this machine; the rest
is pure.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.cluster.machine.hostfs import read_text
from runner.core.events import ProfileKind
from runner.core.request import BARE_ENGINES, NARROWED, Device, EngineName, Request
from runner.core.trial import Counting, ProfilePass, Trial

ITERATIONS: Final = 5
# Nsight Compute takes 0.06 to 0.3 s per kernel on an H200, both runs together, and a step has hundreds of kernels.
REPLAYED_ITERATIONS: Final = 1
MAX_REPLAYED: Final = 2_000  # kernels: two to ten minutes
# Passes that read counters of GPUs, or record calls of their API.
OF_GPUS: Final = frozenset[ProfileKind]({"metrics", "calls"})
# Iterations per window before the profiler starts, if the measured runs choose their own window.
WINDOW: Final = 5
# The file that says whether ordinary users may read the GPU's counters, and where NVIDIA's packages and the CUDA toolkit install Nsight Compute.
PARAMETERS: Final = "proc/driver/nvidia/params"
INSTALLATIONS: Final = ("opt/nvidia/nsight-compute/*", "usr/local/cuda*/nsight-compute*")


@dataclass(frozen=True)
class Nsight:
    """Nsight Compute on this machine, and who may use it."""

    program: str | None = None  # path of `ncu`
    folder: str | None = None  # its complete installation; None if `ncu` is not in one
    admin_only: bool | None = None  # whether the driver restricts counters to root; None if unknown
    root: bool = False  # whether the suite runs as root


def find_nsight(*, sys_root: Path = Path("/"), path: str | None = None, root: bool | None = None) -> Nsight:
    """Find Nsight Compute: preferably the `ncu` on `path` (None: PATH), else the newest installation below `sys_root`."""
    found = shutil.which("ncu", path=path)
    own = Path(found).resolve().parent if found else None
    installed = (place.resolve() for pattern in INSTALLATIONS for place in sys_root.glob(pattern) if _complete(place))
    folders = [own] if own and _complete(own) else sorted(installed, key=_version)
    folder = folders[-1] if folders else None
    admin_only = re.search(r"^RmProfilingAdminOnly: (\d)", read_text(sys_root / PARAMETERS) or "", re.MULTILINE)
    return Nsight(
        program=found or (str(folder / "ncu") if folder else None),
        folder=str(folder) if folder else None,
        admin_only=admin_only[1] != "0" if admin_only else None,
        root=os.geteuid() == 0 if root is None else root,
    )


def _complete(folder: Path) -> bool:
    """Whether a folder has `ncu` and the libraries that it injects into programs; a CUDA toolkit's `bin/ncu` only calls a complete one."""
    return os.access(folder / "ncu", os.X_OK) and (folder / "target").is_dir()


def _version(folder: Path) -> tuple[int, ...]:
    """`nsight-compute-2025.3.0` as (2025, 3, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", folder.name))


def passes(
    request: Request,
    trials: Sequence[Trial],
    *,
    scales: Collection[int],
    nsight: Nsight,
    engine: EngineName,
    here: bool,
) -> tuple[Trial, ...]:
    """One pass for each kind, scale and interconnect of the measured trials; none for a baseline that is not in the requested `scales`."""
    found = []
    for trial in trials:
        if trial.repeat > 1 or trial.world_size not in scales:
            continue
        counting = choose_counting(nsight, device=trial.device, devices=trial.world_size, engine=engine, here=here)
        for kind in request.profile:
            replayed = kind == "metrics" and counting.source == "ncu"
            profile = ProfilePass(
                kind=kind,
                after=request.profile_after,
                iterations=request.profile_iterations or (REPLAYED_ITERATIONS if replayed else ITERATIONS),
                region=request.profile_region if kind in NARROWED else None,
                counting=counting if kind == "metrics" else None,
            )
            changes = {"probe_bytes": (), "window": trial.window or WINDOW, "profile": profile}
            found.append(trial.model_copy(update=changes))
    return tuple(found)


def choose_counting(nsight: Nsight, *, device: Device, devices: int, engine: EngineName, here: bool) -> Counting:
    """Choose the reader of the counters for a trial on `devices` devices; `here` is whether `engine` runs it on this machine."""
    if device == "cpu":
        return Counting(source="none", reason="unavailable: no NVIDIA device")
    in_container = engine not in BARE_ENGINES
    if reason := _obstacle(nsight, devices=devices, in_container=in_container, here=here):
        return Counting(source="sampler", reason=reason)
    program = f"{nsight.folder}/ncu" if in_container else nsight.program
    return Counting(source="ncu", program=program, folder=nsight.folder if in_container else None)


def limit_replay(trial: Trial, kernels_per_step: float) -> Trial:
    """Have the sampler read the counters of a pass if its kernels are more than Nsight Compute can replay in minutes."""
    profile = trial.profile
    if profile is None or profile.ncu is None or (kernels := kernels_per_step * profile.iterations) <= MAX_REPLAYED:
        return trial
    reason = f"ncu runs each kernel several times, here {kernels:,.0f} of them, and {MAX_REPLAYED:,} are the most that it is given"
    counting = Counting(source="sampler", reason=reason)
    return trial.model_copy(update={"profile": profile.model_copy(update={"counting": counting})})


def _obstacle(nsight: Nsight, *, devices: int, in_container: bool, here: bool) -> str | None:
    """Why Nsight Compute cannot be used; None if it can. A job in a container is never root."""
    if not here:
        return "the job runs on other machines, and ncu was looked for on this one alone"
    if devices > 1:
        # https://docs.nvidia.com/nsight-compute/ProfilingGuide/, "Multi-Process Support" and "Serialization"
        return "ncu runs kernels one at a time and repeats them, which hangs those of several devices that wait for each other"
    if nsight.program is None:
        return "there is no ncu on PATH, below /opt/nvidia/nsight-compute or below /usr/local/cuda*"
    if in_container and nsight.folder is None:
        return f"{nsight.program} is in no installation folder that a container could be given"
    # https://developer.nvidia.com/nvidia-development-tools-solutions-err_nvgpuctrperm-permission-issue-performance-counters
    if nsight.admin_only is not False and (in_container or not nsight.root):
        who = "jobs in containers are never root" if in_container else "the suite does not run as root"
        return (
            f"the driver keeps its counters to root (RmProfilingAdminOnly), and {who}; load the module nvidia with "
            "NVreg_RestrictProfilingToAdminUsers=0 to allow them to all"
        )
    return None
