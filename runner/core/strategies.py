"""The strategies for training one model on several devices, each with its frameworks and launcher: the only list of them in the runner.

Other files name one only where it is an exception: techniques and settings that do not work with it, or bytes that it sends in another way.
"""

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

    `one_process`: a single process drives all devices of a host; otherwise each device has its own. `between_cpus` carries gradients between
    CPU workers (`transport.carrier` has the rest). `cuts`: each device holds a part of the network; the workload must name such a strategy.
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

# The framework's usual strategy for several devices: on one node, and on several nodes.
DEFAULT_STRATEGY: Final[Mapping[str, StrategyName]] = {
    "caffe": "caffe",
    "mxnet": "kvstore",
    "pytorch": "ddp",
    "tensorflow": "mirrored",
}
DEFAULT_ON_NODES: Final[Mapping[str, StrategyName]] = {**DEFAULT_STRATEGY, "tensorflow": "multiworker"}
