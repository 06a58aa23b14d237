"""Why runs fail, as a table of (reason, pattern): the last lines of a log → one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

KILLED: Final = 137


class Cause(NamedTuple):
    """A cause of failure and the line that shows it; the first match wins."""

    reason: str
    pattern: re.Pattern[str]


CAUSES: Final = (
    Cause(
        "the device ran out of memory; try a smaller BATCH",
        re.compile(r"CUDA out of memory|OutOfMemoryError|cudaMalloc.*out of memory", re.IGNORECASE),
    ),
    Cause(
        "the process ran out of memory; try a smaller BATCH",
        re.compile(r"MemoryError|Cannot allocate memory|DefaultCPUAllocator: can't allocate", re.IGNORECASE),
    ),
    Cause(
        "the image has no code for this GPU; `dlscale doctor` names images that do",
        re.compile(r"no kernel image is available|not compiled with.*sm_\d+", re.IGNORECASE),
    ),
    Cause(
        "the driver is too old for the image's CUDA; `dlscale doctor` names images that fit",
        re.compile(r"driver version is insufficient|forward compatibility was attempted", re.IGNORECASE),
    ),
    Cause(
        "NCCL could not move data between the ranks",
        re.compile(r"NCCL (error|WARN)|ncclSystemError|ncclUnhandledCudaError"),
    ),
    Cause(
        "shared memory ran out",
        re.compile(r"No space left on device.*shm|insufficient shared memory|bus error", re.IGNORECASE),
    ),
    Cause("the program could not import a module", re.compile(r"^(ModuleNotFoundError|ImportError): .*")),
)


def explain(exit_code: int, last_lines: Sequence[str]) -> str:
    """Name the cause of a non-zero exit; the last line that the program wrote when the table does not know it."""
    for cause in CAUSES:
        for line in reversed(last_lines):
            if match := cause.pattern.search(line):
                return f"{cause.reason} ({match.string.strip()[:200]})"
    if exit_code == KILLED:
        return "the kernel killed it (exit code 137), most likely at its memory limit; try a smaller BATCH"
    said = next((line.strip() for line in reversed(last_lines) if line.strip()), "")
    return f"exit code {exit_code}{': ' + said[:300] if said else ''}"
