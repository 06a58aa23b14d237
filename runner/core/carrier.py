"""What carries the gradients of a trial between its devices: the library, and what it can speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from runner.core.request import StrategyName
from runner.core.trial import Trial

# `memory`: one process drives all devices and copies between them.
Carrier = Literal["none", "memory", "nccl", "gloo", "mpi", "ps-lite", "grpc"]

# These know sockets and nothing else: over InfiniBand they speak IP, and over RoCE plain Ethernet.
IP_ONLY: Final[frozenset[Carrier]] = frozenset({"gloo", "ps-lite", "grpc"})
LIBRARIES: Final[Mapping[Carrier, str]] = {
    "none": "the process",
    "memory": "the framework",
    "nccl": "NCCL",
    "gloo": "Gloo",
    "mpi": "Open MPI",
    "ps-lite": "ps-lite",
    "grpc": "gRPC",
}


def carrier(trial: Trial) -> Carrier:
    """The library that moves the gradients, which follows from strategy, store and device."""
    if trial.world_size == 1:
        return "none"
    if trial.horovod:
        return trial.horovod.operations
    if trial.strategy == "kvstore" and trial.kvstore != "nccl":
        return "ps-lite" if trial.processes > 1 else "memory"
    if trial.device == "gpu":
        return "nccl"
    several: dict[StrategyName, Carrier] = {"ddp": "gloo", "multiworker": "grpc"}
    return several.get(trial.strategy, "memory")
