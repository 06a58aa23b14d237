"""Who reads the hardware's counters in a pass of kind `metrics`: Nsight Compute, kernel by kernel, or the node's sampler. Pure.

Nsight Compute says what each kernel did and makes it run alone, several times; the sampler's GPM or DCGM only sees averages over time,
and disturbs nothing. The first is taken wherever it can work, and the record has the reason where it could not.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.core.request import BARE_ENGINES, Device, EngineName
from runner.core.trial import Counting


@dataclass(frozen=True)
class Nsight:
    """Nsight Compute on this machine, and who may use it.

    Attributes:
        program: path of `ncu`; None where there is none.
        folder: the installation that has all that it needs; None where `ncu` is not in one.
        admin_only: whether the driver keeps its counters to root; None where it does not say.
        root: whether the suite runs as root.
    """

    program: str | None = None
    folder: str | None = None
    admin_only: bool | None = None
    root: bool = False


def choose_counting(nsight: Nsight, *, device: Device, devices: int, engine: EngineName, here: bool) -> Counting:
    """Decide who reads the counters of a trial.

    Args:
        nsight: what this machine has.
        device: what the trial runs on.
        devices: how many of them.
        engine: what runs it; a job in a container is never root.
        here: whether it runs on this machine.
    """
    if device == "cpu":
        return Counting(source="none", reason="unavailable: no NVIDIA device")
    if reason := _against(nsight, devices=devices, engine=engine, here=here):
        return Counting(source="sampler", reason=reason)
    in_container = engine not in BARE_ENGINES
    program = f"{nsight.folder}/ncu" if in_container else nsight.program
    return Counting(source="ncu", program=program, folder=nsight.folder if in_container else None)


def _against(nsight: Nsight, *, devices: int, engine: EngineName, here: bool) -> str | None:
    """Why it can't be Nsight Compute; None where it can."""
    if not here:
        return "the job runs on other machines, and ncu was looked for on this one alone"
    if devices > 1:
        # https://docs.nvidia.com/nsight-compute/ProfilingGuide/, "Multi-Process Support" and "Serialization"
        return "ncu runs kernels one at a time and repeats them, which hangs those of several devices that wait for each other"
    if nsight.program is None:
        return "there is no ncu on PATH, below /opt/nvidia/nsight-compute or below /usr/local/cuda*"
    in_container = engine not in BARE_ENGINES
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
