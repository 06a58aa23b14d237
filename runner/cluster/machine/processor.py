"""What a host's processor is: its kind, its vector and matrix instructions, its cores. Reads /proc and /sys, and guesses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from runner.cluster.machine.hostfs import parse_cpu_list, read_text
from runner.core.node import Processor

# Flags of /proc/cpuinfo that name vector and matrix instructions, the narrowest first.
VECTOR_FLAGS: Final = ("sse2", "avx", "fma", "avx2", "avx512f", "avx512_bf16", "amx_bf16")


def read_processor(sys_root: Path = Path("/")) -> Processor | None:
    """Describe the first processor; None where /proc/cpuinfo has no vendor or family.

    Args:
        sys_root: root of the /proc and /sys that are read; a made-up tree in tests.
    """
    first, _, _ = (read_text(sys_root / "proc/cpuinfo") or "").partition("\n\n")
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    family, model = told.get("cpu family", ""), told.get("model", "")
    if "vendor_id" not in told or not family.isdigit() or not model.isdigit():
        return None
    flags = set(told.get("flags", "").split())
    devices = sys_root / "sys/devices/system/cpu"
    online = parse_cpu_list(read_text(devices / "online") or "")
    threads = [read_text(devices / f"cpu{cpu}/topology/thread_siblings_list") for cpu in online]
    return Processor(
        vendor=told["vendor_id"],
        family=int(family),
        model=int(model),
        flags=tuple(flag for flag in VECTOR_FLAGS if flag in flags),
        core_threads=tuple(dict.fromkeys(found for found in threads if found)),
    )
