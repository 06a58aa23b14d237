"""A snapshot laid out again on this machine, so that the code that reads this machine's own files and NVML reads another's.

What a node sends is checked here: it names files below one folder, and numbers where numbers are due.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

from pydantic import Field, field_validator

from runner.cluster.machine.local_node import read_node
from runner.core.frozen import Frozen
from runner.core.node import Node


class GpuAnswer(Frozen):
    """What NVML says of one GPU; None where it has no answer.

    Attributes:
        capability: compute capability, major and minor.
        links: state of each NVLink connection, 1 where it is active.
        reasons: bits of nvmlDeviceGetCurrentClocksEventReasons.
        pids: processes that compute on it, as the node counts them.
    """

    uuid: str
    name: str
    memory_bytes: int
    capability: tuple[int, int]
    links: tuple[int, ...]
    reasons: int | None
    pids: tuple[int, ...] | None


class PairAnswer(Frozen):
    """What NVML says of two GPUs, in the codes of nvml.h.

    Attributes:
        read: nvmlGpuP2PStatus_t of reading each other's memory.
        nvlink: the same over NVLink.
        ancestor: nvmlGpuTopologyLevel_t of what both hang on.
    """

    first: int
    second: int
    read: int | None
    nvlink: int | None
    ancestor: int | None


class NvmlAnswers(Frozen):
    """What NVML says of a machine, or the error that it answers with."""

    error: str | None = None
    driver: str | None = None
    cuda: int | None = None
    gpus: tuple[GpuAnswer, ...] = ()
    pairs: tuple[PairAnswer, ...] = ()


class Snapshot(Frozen):
    """What `snapshot` prints.

    Attributes:
        folders: directories that are there.
        files: text by path.
        affinity: CPU ids that the snapshot's process may run on.
        addresses: first IPv4 address by interface.
        local: every IPv4 address that the machine has.
        ports: TCP ports that were free.
        nvml: None where no GPU was handed to the container.
    """

    folders: tuple[str, ...]
    files: Mapping[str, str]
    affinity: tuple[int, ...]
    addresses: Mapping[str, str]
    local: tuple[str, ...]
    ports: tuple[int, ...] = Field(min_length=1)
    nvml: NvmlAnswers | None

    @field_validator("folders", "files")
    @classmethod
    def _inside(cls, paths: Any) -> Any:
        for path in paths:
            parts = PurePosixPath(path).parts
            if parts[:1] != ("/",) or parts[1:2] not in (("proc",), ("sys",)) or ".." in parts:
                raise ValueError(f"{path!r} is no file of /proc or /sys")
        return paths

    def lay_out(self, root: Path) -> None:
        """Write the files and folders below `root`."""
        for name in self.folders:
            (root / name[1:]).mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            path = root / name[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def node(self, name: str, root: Path, *, no_gpus: str | None = None) -> Node:
        """The machine, read by the code that reads this one.

        Args:
            name: what the suite calls it.
            root: where the snapshot was laid out.
            no_gpus: why its engine handed out no GPUs.
        """
        return read_node(
            name=name,
            sys_root=root,
            nvml=self.recorded_nvml(no_gpus),
            visible=None,
            affinity=self.affinity,
            addresses=self.addresses,
            ports=self.ports,
        )

    def recorded_nvml(self, no_gpus: str | None = None) -> RecordedNvml:
        """The node's NVML, as a module that answers from the snapshot."""
        return RecordedNvml(self.nvml or NvmlAnswers(error=no_gpus or "no GPU was handed to the container"))


class RecordedNvmlError(Exception):
    """What NVML answered with."""


class RecordedNvml:
    """nvidia-ml-py's interface, as far as the suite uses it, answered from what a node's NVML has said."""

    NVMLError = RecordedNvmlError
    NVML_NVLINK_MAX_LINKS = 64

    def __init__(self, answers: NvmlAnswers) -> None:
        self._answers = answers

    def nvmlInit(self) -> None:  # noqa: N802 - the names are the library's
        """Begin, or raise what the node's NVML did."""
        if self._answers.error is not None:
            raise RecordedNvmlError(self._answers.error)

    def nvmlShutdown(self) -> None:  # noqa: N802
        """End."""

    def nvmlSystemGetDriverVersion(self) -> str | None:  # noqa: N802
        """Version of the kernel driver."""
        return self._answers.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        """The newest CUDA version that the driver speaks, 13000 for 13.0."""
        return self._answers.cuda or 0

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Number of GPUs."""
        return len(self._answers.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> GpuAnswer:  # noqa: N802
        """A GPU's answers, which are its handle."""
        return self._answers.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: GpuAnswer) -> str:  # noqa: N802
        """Its name in the world."""
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: GpuAnswer) -> str:  # noqa: N802
        """Its model."""
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: GpuAnswer) -> SimpleNamespace:  # noqa: N802
        """Its memory in bytes."""
        return SimpleNamespace(total=gpu.memory_bytes)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: GpuAnswer) -> tuple[int, int]:  # noqa: N802
        """Major and minor."""
        return gpu.capability

    def nvmlDeviceGetNvLinkState(self, gpu: GpuAnswer, link: int) -> int:  # noqa: N802
        """1 for an active connection."""
        if link >= len(gpu.links):
            raise RecordedNvmlError("Not Supported")
        return gpu.links[link]

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: GpuAnswer) -> int:  # noqa: N802
        """What holds its clocks."""
        if gpu.reasons is None:
            raise RecordedNvmlError("Not Supported")
        return gpu.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: GpuAnswer) -> list[SimpleNamespace]:  # noqa: N802
        """Processes that compute on it."""
        if gpu.pids is None:
            raise RecordedNvmlError("Not Supported")
        return [SimpleNamespace(pid=pid) for pid in gpu.pids]
