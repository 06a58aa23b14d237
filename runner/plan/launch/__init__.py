"""Launchers: one small pure file a strategy, each turning a `Job` into the `ContainerSpec`s that run it.

To add one, write `launch/<strategy>.py` with a function `specs(job)`, enter it in `STRATEGIES`, and add a golden test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runner.core.container_spec import ContainerSpec
from runner.core.request import Device, StrategyName
from runner.plan.launch import emulated, horovod, kvstore, multiworker, single, torchrun
from runner.plan.launch.job import Job


@dataclass(frozen=True)
class Strategy:
    """A way to use several devices: which frameworks have it, and who launches it.

    Attributes:
        devices: what it can drive.
        one_process: whether one process drives all devices of a host; else each has its own.
        several_nodes: whether it goes beyond one host.
    """

    frameworks: tuple[str, ...]
    specs: Callable[[Job], tuple[ContainerSpec, ...]]
    devices: tuple[Device, ...] = ("cpu", "gpu")
    one_process: bool = False
    several_nodes: bool = False


STRATEGIES: Mapping[StrategyName, Strategy] = {
    "single": Strategy(("caffe", "mxnet", "pytorch", "tensorflow"), single.specs, one_process=True),
    "ddp": Strategy(("pytorch",), torchrun.specs, several_nodes=True),
    "kvstore": Strategy(("mxnet",), kvstore.specs, several_nodes=True),
    "mirrored": Strategy(("tensorflow",), single.specs, one_process=True),
    "multiworker": Strategy(("tensorflow",), multiworker.specs, several_nodes=True),
    "horovod": Strategy(("mxnet", "pytorch", "tensorflow"), horovod.specs, several_nodes=True),
    "caffe": Strategy(("caffe",), single.specs, devices=("gpu",), one_process=True),
}

# What a user of the framework expects where several devices train: on one node, and on several.
DEFAULT_STRATEGY: Mapping[str, StrategyName] = {
    "caffe": "caffe",
    "mxnet": "kvstore",
    "pytorch": "ddp",
    "tensorflow": "mirrored",
}
DEFAULT_ON_NODES: Mapping[str, StrategyName] = {**DEFAULT_STRATEGY, "tensorflow": "multiworker"}


def launch(job: Job) -> tuple[ContainerSpec, ...]:
    """The containers of one trial, in the order in which they start; what stands for emulated nodes comes first."""
    return (*emulated.nodes(job), *STRATEGIES[job.trial.strategy].specs(job))
