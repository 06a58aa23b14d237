"""The strategies for training one model on several devices, each with its frameworks and launcher: the only list of them in the runner.

Other files ask for its facts here; they name one only for settings and packages of its own (MXNet's store, Horovod), for a single device,
and for the predictions that model it.
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
    CPU workers (`transport.carrier` has the rest).

    cuts: each device holds a part of the network; only workloads with `cuts` offer such a strategy.
    splits_layers: it cuts each layer, among all devices of a node or among as many neighbours as a setting says.
    copies_network: each step copies the network to the devices; techniques that keep a reference to one network fail.
    parameter_servers: servers in host memory hold the weights and apply each worker's gradients as they arrive.
    sends_by_thread: another thread sends the gradients, which a CUDA graph cannot record.
    tunes_exchange: its program has the techniques that change what is sent between ranks.
    """

    frameworks: tuple[str, ...]
    launcher: str
    devices: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
    one_process: bool = False
    several_nodes: bool = False
    between_cpus: Literal["memory", "gloo", "grpc"] = "memory"
    cuts: bool = False
    splits_layers: Literal["all", "neighbours"] | None = None
    copies_network: bool = False
    parameter_servers: bool = False
    sends_by_thread: bool = False
    tunes_exchange: bool = False


STRATEGIES: Final[Mapping[StrategyName, Strategy]] = {
    "single": Strategy(("caffe", "mxnet", "pytorch", "tensorflow"), "single", one_process=True),
    "ddp": Strategy(("pytorch",), "torchrun", several_nodes=True, between_cpus="gloo", tunes_exchange=True),
    "dp": Strategy(("pytorch",), "single", devices=("gpu",), one_process=True, copies_network=True),
    "kvstore": Strategy(("mxnet",), "kvstore", several_nodes=True),
    "mirrored": Strategy(("tensorflow",), "single", one_process=True),
    "multiworker": Strategy(("tensorflow",), "multiworker", several_nodes=True, between_cpus="grpc"),
    "ps": Strategy(("tensorflow",), "ps", several_nodes=True, between_cpus="grpc", parameter_servers=True),
    "horovod": Strategy(("mxnet", "pytorch", "tensorflow"), "horovod", several_nodes=True, sends_by_thread=True),
    "caffe": Strategy(("caffe",), "single", devices=("gpu",), one_process=True),
    "fsdp": Strategy(("pytorch",), "torchrun", several_nodes=True, between_cpus="gloo", cuts=True),
    "tp": Strategy(("pytorch",), "torchrun", between_cpus="gloo", cuts=True, splits_layers="all"),
    "fsdp+tp": Strategy(
        ("pytorch",), "torchrun", several_nodes=True, between_cpus="gloo", cuts=True, splits_layers="neighbours"
    ),
}

# The framework's usual strategy for several devices: on one node, and on several nodes.
DEFAULT_STRATEGY: Final[Mapping[str, StrategyName]] = {
    "caffe": "caffe",
    "mxnet": "kvstore",
    "pytorch": "ddp",
    "tensorflow": "mirrored",
}
DEFAULT_ON_NODES: Final[Mapping[str, StrategyName]] = {**DEFAULT_STRATEGY, "tensorflow": "multiworker"}
