"""A machine's report on itself, as one line of JSON: the files that the suite reads, its addresses, free ports, and NVML's answers.

    python3 -c "$(cat snapshot.py)" PORTS [PYNVML...]

Runs on another machine, in a container of the suite's base with that machine's network and no capabilities, or by ssh or a Slurm step, so it is
one file that needs only the standard library. It judges nothing: `hosts/survey.py` writes the files out again, and the code for this machine's
files reads them. PYNVML is nvidia-ml-py's module, packed by the survey; without it no GPU is asked.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import socket
import struct
import sys
import time
import types
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SIOCGIFADDR = 0x8915  # include/uapi/linux/sockios.h

# Directories that matter by their mere presence, and the files to read; `*` as in a shell.
FOLDERS = (
    "/sys/class/net/*",
    "/sys/class/net/*/bonding",
    "/sys/class/net/*/device",
    "/sys/class/net/*/wireless",
    "/sys/class/infiniband/*/ports/*",
    "/sys/class/powercap/intel-rapl:*",
    "/sys/devices/system/node/node[0-9]*",
)
FILES = (
    "/proc/cpuinfo",
    "/proc/device-tree/model",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/sys/kernel/random/boot_id",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/rate",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/net/*/mtu",
    "/sys/class/net/*/operstate",
    "/sys/class/net/*/speed",
    "/sys/class/net/*/type",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count",
    "/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id",
    "/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list",
    "/sys/devices/system/cpu/online",
    "/sys/hypervisor/type",
)
# Read in each control group from the process's own up to the mount.
LIMITS = (
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpuset.cpus.effective",
    "cpuset.effective_cpus",
    "memory.max",
    "memory.limit_in_bytes",
)
NVIDIA = "0x10de"
# nvmlGpuP2PCapsIndex_t of nvml.h; the module's own NVML_P2P_CAPS_INDEX_READ is a tuple, because of a stray comma.
P2P_READ, P2P_NVLINK = 0, 2


def read(path: Path) -> str | None:
    """Text of a file; None if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def matching(patterns: Sequence[str]) -> list[Path]:
    """Everything that matches the absolute patterns."""
    return [path for pattern in patterns for path in Path("/").glob(pattern[1:])]


def group_files() -> Iterator[Path]:
    """The limits that bind this process, under cgroup v1, v2 or both."""
    mounts = []
    for line in (read(Path("/proc/self/mountinfo")) or "").splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in ("cgroup", "cgroup2"):
            mounts.append(Path(before.split()[4]))
    groups = {line.split(":", 2)[2] for line in (read(Path("/proc/self/cgroup")) or "").splitlines()}
    groups = {group for group in groups if ".." not in group}  # a group above this namespace's root has no folder here
    for mount in mounts:
        own = [mount / group.lstrip("/") for group in groups]
        lineage = {mount, *own, *(above for group in own for above in group.parents if mount in above.parents)}
        for folder in sorted(lineage):
            yield from (folder / name for name in LIMITS)


def pci_files() -> Iterator[Path]:
    """Vendor and class of NVIDIA's functions on the PCI bus, so that a GPU without a driver is noticed."""
    for function in Path("/sys/bus/pci/devices").glob("*"):
        if (read(function / "vendor") or "").strip() == NVIDIA:
            yield from (function / "vendor", function / "class")


def addresses() -> dict[str, str]:
    """First IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no address
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def local_addresses() -> list[str]:
    """Every IPv4 address of this machine, including an interface's secondary ones (`/32 host LOCAL` below it in fib_trie)."""
    found = set()
    last = ""
    for line in (read(Path("/proc/net/fib_trie")) or "").splitlines():
        if "|-- " in line:
            last = line.partition("|-- ")[2]
        elif line.strip() == "/32 host LOCAL":
            found.add(last)
    return sorted(found)


def free_ports(count: int) -> tuple[int, ...]:
    """TCP ports that are free on every address of the machine.

    The kernel assigns them in turn and does not soon reuse one, so they are still free when the ranks bind them.
    """
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return tuple(probe.getsockname()[1] for probe in probes)


def load_pynvml(packed: str) -> Any:
    """nvidia-ml-py's module, from its packed source."""
    module = types.ModuleType("pynvml")
    # It looks itself up by name, to store its table of functions.
    sys.modules["pynvml"] = module
    exec(compile(zlib.decompress(base64.b85decode(packed)), "pynvml.py", "exec"), module.__dict__)  # noqa: S102 - sent by the runner
    return module


def text(answer: Any) -> Any:
    """An answer as text: older releases of nvidia-ml-py return bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """One NVML function's answer; None if this driver or GPU has none."""
    try:
        return text(getattr(nvml, function)(*arguments))
    except (nvml.NVMLError, AttributeError):
        return None


def nvml_answers(nvml: Any, *, pairs: bool) -> dict[str, Any]:
    """NVML's answers about the driver, every GPU and, with `pairs`, every pair of them."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": str(error), "loaded": False}
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        index_pairs = itertools.combinations(range(len(handles)), 2) if pairs else ()
        return {
            "driver": ask(nvml, "nvmlSystemGetDriverVersion"),
            "cuda": ask(nvml, "nvmlSystemGetCudaDriverVersion_v2"),
            "gpus": [gpu_answer(nvml, handle) for handle in handles],
            "pairs": [pair_answer(nvml, handles, first, second) for first, second in index_pairs],
        }
    except nvml.NVMLError as error:
        return {"error": str(error)}
    finally:
        nvml.nvmlShutdown()


def gpu_answer(nvml: Any, handle: Any) -> dict[str, Any]:
    """Name, size, links and current state of a GPU."""
    links = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = ask(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:  # this GPU has no such link
            break
        links.append(state)
    processes = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    return {
        "uuid": text(nvml.nvmlDeviceGetUUID(handle)),
        "name": text(nvml.nvmlDeviceGetName(handle)),
        "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "capability": list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "links": links,
        "reasons": ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle),
        "pids": None if processes is None else [process.pid for process in processes],
    }


def pair_answer(nvml: Any, handles: Sequence[Any], first: int, second: int) -> dict[str, Any]:
    """Whether two GPUs access each other's memory, in NVML's codes: P2P status over any path and over NVLink, nearest common ancestor."""
    pair = (handles[first], handles[second])
    return {
        "first": first,
        "second": second,
        "read": ask(nvml, "nvmlDeviceGetP2PStatus", *pair, P2P_READ),
        "nvlink": ask(nvml, "nvmlDeviceGetP2PStatus", *pair, P2P_NVLINK),
        "ancestor": ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", *pair),
    }


def main(arguments: Sequence[str]) -> None:
    """Print the snapshot."""
    system = os.uname()
    texts = {str(path): read(path) for path in (*matching(FILES), *group_files(), *pci_files())}
    found = {
        "folders": sorted(str(path) for path in matching(FOLDERS) if path.is_dir()),
        "files": {path: text for path, text in sorted(texts.items()) if text is not None},
        "affinity": sorted(os.sched_getaffinity(0)),
        "addresses": addresses(),
        "local": local_addresses(),
        "ports": free_ports(int(arguments[0])),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "uname": {"hostname": system.nodename, "kernel": system.release, "architecture": system.machine},
        "time": time.time(),
        "nvml": nvml_answers(load_pynvml("".join(arguments[1:])), pairs=True) if arguments[1:] else None,
    }
    print(json.dumps(found))  # noqa: T201 - a program


if __name__ == "__main__":
    main(sys.argv[1:])
