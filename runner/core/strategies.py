"""The ways to train one model on several devices: which frameworks have each, and what launches it. Nothing else in the runner lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

StrategyName = Literal[
    "single", "ddp", "dp", "kvstore", "horovod", "mirrored", "multiworker", "ps", "caffe", "fsdp", "tp", "fsdp+tp"
]


@dataclass(frozen=True)
class Strategy:
    """A way to use several devices; `launcher` is the function of `runner/plan/launch/launchers.py` that makes its containers.

    `one_process` drives all devices of a host, else each has its own. `between_cpus` carries the gradients between CPU workers, NCCL
    those between GPUs. `cuts`: devices hold parts of the network, which not every network can be cut into: a workload names it.
    """

    frameworks: tuple[str, ...]
    launcher: str
    devices: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
    one_process: bool = False
    several_nodes: bool = False
    between_cpus: Literal["memory", "gloo", "grpc"] = "memory"
    cuts: bool = False


STRATEGIES: Final[Mapping[StrategyName, Strategy]] = {
    "single": Strategy(("caffe", "mxnet", "pytorch", "tensorflow"), "single", one_process=True),
    "ddp": Strategy(("pytorch",), "torchrun", several_nodes=True, between_cpus="gloo"),
    "dp": Strategy(("pytorch",), "single", devices=("gpu",), one_process=True),
    "kvstore": Strategy(("mxnet",), "kvstore", several_nodes=True),
    "mirrored": Strategy(("tensorflow",), "single", one_process=True),
    "multiworker": Strategy(("tensorflow",), "multiworker", several_nodes=True, between_cpus="grpc"),
    "ps": Strategy(("tensorflow",), "ps", several_nodes=True, between_cpus="grpc"),
    "horovod": Strategy(("mxnet", "pytorch", "tensorflow"), "horovod", several_nodes=True),
    "caffe": Strategy(("caffe",), "single", devices=("gpu",), one_process=True),
    "fsdp": Strategy(("pytorch",), "torchrun", several_nodes=True, between_cpus="gloo", cuts=True),
    "tp": Strategy(("pytorch",), "torchrun", between_cpus="gloo", cuts=True),
    "fsdp+tp": Strategy(("pytorch",), "torchrun", several_nodes=True, between_cpus="gloo", cuts=True),
}

# What a user of the framework expects where several devices train: on one node, and on several.
DEFAULT_STRATEGY: Final[Mapping[str, StrategyName]] = {
    "caffe": "caffe",
    "mxnet": "kvstore",
    "pytorch": "ddp",
    "tensorflow": "mirrored",
}
DEFAULT_ON_NODES: Final[Mapping[str, StrategyName]] = {**DEFAULT_STRATEGY, "tensorflow": "multiworker"}
