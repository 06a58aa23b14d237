"""GPUs and their driver, from the answers of NVML (nvidia-ml-py) on this machine or another. Never changes a setting.

A machine without GPUs is an ordinary machine: the result is then no GPUs and the reason why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from runner.cluster.machine import snapshot
from runner.cluster.machine.hostfs import nvidia_pci_functions
from runner.core.frozen import Frozen
from runner.core.node import SLOWDOWNS, Gpu

# nvmlGpuTopologyLevel_t, in the terms of `nvidia-smi topo -m`.
_ANCESTORS: Final = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one PCIe host bridge",
    40: "one NUMA node",
    50: "the link between sockets",
}
# nvmlGpuP2PStatus_t, in the terms of `nvidia-smi topo -p2p`.
_NOT_DIRECT: Final = {
    1: "the chipset does not support it",
    2: "the GPUs do not support it",
    3: "the topology does not support it",
    4: "it is disabled in the driver's settings",
    5: "it is not supported",
}


class GpuAnswer(Frozen):
    """NVML's answers about one GPU; None if it has none."""

    uuid: str
    name: str
    memory_bytes: int
    capability: tuple[int, int]
    links: tuple[int, ...]  # state of each NVLink, 1 if active
    reasons: int | None  # bits of nvmlDeviceGetCurrentClocksEventReasons
    pids: tuple[int, ...] | None  # processes that compute on it, by the node's own process ids


class PairAnswer(Frozen):
    """NVML's answers about two GPUs, in the codes of nvml.h; None if it has none."""

    first: int
    second: int
    read: int | None  # nvmlGpuP2PStatus_t for reading each other's memory
    nvlink: int | None  # the same over NVLink
    ancestor: int | None  # nvmlGpuTopologyLevel_t of their nearest common ancestor

    @property
    def kind(self) -> str:
        """The path over which they access each other's memory, and whether it is direct."""
        if self.read is None:
            return "unknown to NVML"
        path = "NVLink" if self.nvlink == 0 else _ANCESTORS.get(-1 if self.ancestor is None else self.ancestor, "PCIe")
        if self.read == 0:
            return path
        return f"not direct ({path}; {_NOT_DIRECT.get(self.read, 'the driver does not say why')})"


class NvmlAnswers(Frozen):
    """NVML's answers about a machine, or its error."""

    error: str | None = None
    loaded: bool = True
    driver: str | None = None
    cuda: int | None = None  # the newest CUDA version that the driver supports, 13000 for 13.0
    gpus: tuple[GpuAnswer, ...] = ()
    pairs: tuple[PairAnswer, ...] = ()

    @property
    def cuda_driver(self) -> str | None:
        """The newest CUDA version that the driver supports, "13.0"; None if the driver does not tell."""
        return f"{self.cuda // 1000}.{self.cuda % 1000 // 10}" if self.cuda and self.error is None else None


class GpuHealth(Frozen):
    """What would disturb a measurement on one GPU right now."""

    index: int
    slowdowns: tuple[str, ...]  # reasons for reduced clocks; an idle GPU's low clocks do not count
    processes: tuple[int, ...]


def ask_nvml(nvml: Any | None = None) -> NvmlAnswers:
    """Ask this machine's NVML, through a module with nvidia-ml-py's interface; through nvidia-ml-py itself when None."""
    if nvml is None:
        import pynvml  # noqa: PLC0415 - builds ctypes tables: 15 ms that --help need not wait for

        nvml = pynvml
    return NvmlAnswers.model_validate(snapshot.nvml_answers(nvml, pairs=False))


def read_gpus(
    answers: NvmlAnswers, *, sys_root: Path = Path("/"), visible: str | None = None
) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs of a machine that CUDA_VISIBLE_DEVICES does not hide, or the reason why there are none.

    If the driver is missing, the PCI bus shows whether there is a GPU.
    """
    if answers.error is not None:
        if answers.loaded:
            return (), f"the NVIDIA driver answers with an error: {answers.error}"
        functions = nvidia_pci_functions(sys_root)
        if not functions:
            return (), f"no NVIDIA GPU on the PCI bus and no driver ({answers.error})"
        found = f"an NVIDIA GPU is on the PCI bus ({', '.join(functions)})"
        return (), f"{found} and its driver does not answer ({answers.error})"
    all_gpus = tuple(
        Gpu(
            index=index,
            uuid=gpu.uuid,
            name=gpu.name,
            memory_mib=gpu.memory_bytes // 2**20,
            compute_capability="{}.{}".format(*gpu.capability),
            nvlinks=sum(gpu.links),
        )
        for index, gpu in enumerate(answers.gpus)
    )
    gpus = all_gpus if visible is None else select_visible(all_gpus, visible)
    if not all_gpus:
        return (), f"the NVIDIA driver {answers.driver} is loaded and finds no GPU"
    return gpus, None if gpus else f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU ({len(all_gpus)} here)"


def read_health(answers: NvmlAnswers, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
    """The condition of each of these GPUs; a GPU that does not report it is left out."""
    found = []
    answer_of = dict(enumerate(answers.gpus))
    for gpu in gpus:
        answer = answer_of.get(gpu.index)
        if answer and answer.reasons is not None and answer.pids is not None:
            slowdowns = tuple(name for bit, name in SLOWDOWNS.items() if answer.reasons & bit)
            found.append(GpuHealth(index=gpu.index, slowdowns=slowdowns, processes=answer.pids))
    return tuple(found)


def select_visible(gpus: tuple[Gpu, ...], visible: str) -> tuple[Gpu, ...]:
    """Apply CUDA_VISIBLE_DEVICES as the CUDA runtime does.

    Entries are indices or UUID prefixes, in the order wanted; the first that matches no GPU, or more than one, ends the list, and a GPU
    named twice leaves none visible (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        matches = [
            gpu
            for gpu in gpus
            if (entry.isdecimal() and gpu.index == int(entry))
            or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
        ]
        if len(matches) != 1:
            break
        if matches[0] in chosen:
            return ()
        chosen += matches
    return tuple(chosen)


def describe_pairs(pairs: Sequence[PairAnswer]) -> str:
    """List pairs by kind: `NVLink: 0-1, 2-3; not direct (one NUMA node; the chipset does not support it): 0-2, ...`."""
    kinds: dict[str, list[str]] = {}
    for pair in pairs:
        kinds.setdefault(pair.kind, []).append(f"{pair.first}-{pair.second}")
    if len(kinds) == 1 and len(pairs) > 1:
        return f"all {len(pairs)} pairs: {next(iter(kinds))}"
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
