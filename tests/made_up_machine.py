"""Machines that do not exist: trees of /proc and /sys files, and a library that answers like nvidia-ml-py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write files by path below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    return root


class FakeNvmlError(Exception):
    pass


@dataclass
class Card:
    uuid: str
    name: str = "NVIDIA H200"
    memory_bytes: int = 150_754_820_096
    capability: tuple[int, int] = (9, 0)
    reasons: int = 0x1  # idle
    pids: tuple[int, ...] = ()
    links: tuple[int, ...] = ()


class FakeNvml:
    """Answers like nvidia-ml-py for the given cards; with `broken`, there is no driver."""

    # ruff: noqa: N802  (the names are the library's)

    NVMLError = FakeNvmlError
    NVML_NVLINK_MAX_LINKS = 18

    def __init__(
        self, cards: list[Card], *, broken: str | None = None, driver: str | bytes = "580.159.03", cuda: int = 13000
    ):
        self.cards, self.broken, self.driver, self.cuda = cards, broken, driver, cuda
        self.open = 0

    def nvmlInit(self):
        if self.broken:
            raise FakeNvmlError(self.broken)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return self.cuda

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetUUID(self, card):
        return card.uuid

    def nvmlDeviceGetName(self, card):
        return card.name

    def nvmlDeviceGetMemoryInfo(self, card):
        return SimpleNamespace(total=card.memory_bytes)

    def nvmlDeviceGetCudaComputeCapability(self, card):
        return card.capability

    def nvmlDeviceGetNvLinkState(self, card, link):
        if link >= len(card.links):
            raise FakeNvmlError("Not Supported")
        return card.links[link]

    def nvmlDeviceGetCurrentClocksEventReasons(self, card):
        if card.reasons < 0:
            raise FakeNvmlError("Not Supported")
        return card.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, card):
        return [SimpleNamespace(pid=pid) for pid in card.pids]
