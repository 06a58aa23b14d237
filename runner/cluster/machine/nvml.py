"""The GPUs and the driver of this machine, asked through NVML (nvidia-ml-py). Reads only; settings are never touched.

A machine without GPUs is an ordinary machine: the answer is then no GPUs and the reason why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.cluster.machine.hostfs import nvidia_pci_functions
from runner.core.frozen import Frozen
from runner.core.node import SLOWDOWNS, Gpu, GpuInventory


class GpuHealth(Frozen):
    """What would disturb a measurement on one GPU at this moment.

    Attributes:
        slowdowns: what holds its clocks down; an idle GPU's low clocks do not count.
        processes: ids of the processes that compute on it.
    """

    index: int
    slowdowns: tuple[str, ...]
    processes: tuple[int, ...]


def read_health(gpus: tuple[Gpu, ...], *, nvml: Any | None = None) -> tuple[GpuHealth, ...]:
    """Ask how each of these GPUs fares now; a GPU that will not say is left out.

    Args:
        gpus: from `read_gpus`.
        nvml: a module with nvidia-ml-py's interface; that library itself when None.
    """
    if not gpus:
        return ()
    nvml = nvml or _library()
    found = []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    for gpu in gpus:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
            bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:
            continue
        slowdowns = tuple(name for bit, name in SLOWDOWNS.items() if bits & bit)
        found.append(
            GpuHealth(index=gpu.index, slowdowns=slowdowns, processes=tuple(process.pid for process in processes))
        )
    nvml.nvmlShutdown()
    return tuple(found)


def read_gpus(*, sys_root: Path = Path("/"), nvml: Any | None = None, visible: str | None = None) -> GpuInventory:
    """Ask NVML for the GPUs.

    Args:
        sys_root: root of the tree whose PCI bus is looked at when the driver is missing.
        nvml: a module with nvidia-ml-py's interface; that library itself when None.
        visible: the value of CUDA_VISIBLE_DEVICES; None when it is not set.
    """
    nvml = nvml or _library()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuInventory(gpus=(), driver=None, cuda_driver=None, reason=_why_no_driver(error, sys_root))
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        every = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return GpuInventory(
            gpus=(), driver=None, cuda_driver=None, reason=f"the NVIDIA driver answers with an error: {error}"
        )
    finally:
        nvml.nvmlShutdown()
    gpus = every if visible is None else select_visible(every, visible)
    reason = None
    if not every:
        reason = f"the NVIDIA driver {driver} is loaded and finds no GPU"
    elif not gpus:
        reason = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU ({len(every)} here)"
    return GpuInventory(gpus=gpus, driver=driver, cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}", reason=reason)


def select_visible(gpus: tuple[Gpu, ...], visible: str) -> tuple[Gpu, ...]:
    """Apply CUDA_VISIBLE_DEVICES as the CUDA runtime does.

    Entries are indices or the beginnings of UUIDs, in the order wanted; the first that matches no GPU, or more than one,
    ends the list, and a GPU named twice leaves none visible (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        matches = [
            gpu
            for gpu in gpus
            if (entry.isdecimal() and gpu.index == int(entry)) or (_is_uuid(entry) and gpu.uuid.startswith(entry))
        ]
        if len(matches) != 1:
            break
        if matches[0] in chosen:
            return ()
        chosen += matches
    return tuple(chosen)


def _library() -> Any:
    import pynvml  # noqa: PLC0415  (builds ctypes tables: 15 ms that --help need not wait for)

    return pynvml


def _is_uuid(entry: str) -> bool:
    return entry.startswith("GPU-")


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20,
        compute_capability=f"{major}.{minor}",
        nvlinks=_active_nvlinks(nvml, handle),
    )


def _active_nvlinks(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError:  # this GPU has no such link
            break
    return active


def _text(value: str | bytes) -> str:
    """Older releases of nvidia-ml-py answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _why_no_driver(error: Exception, sys_root: Path) -> str:
    functions = nvidia_pci_functions(sys_root)
    if not functions:
        return f"no NVIDIA GPU on the PCI bus and no driver ({error})"
    return f"an NVIDIA GPU is on the PCI bus ({', '.join(functions)}) and its driver does not answer ({error})"
