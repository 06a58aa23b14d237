"""Launchers: one small pure file a strategy, each turning a `Job` into the `ContainerSpec`s that run it.

To add one, write `launch/<strategy>.py` with a function `specs(job)`, enter it in `STRATEGIES`, and add a golden test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runner.launch import kvstore, single, torchrun
from runner.launch.job import Job
from runner.request import StrategyName
from runner.spec import ContainerSpec


@dataclass(frozen=True)
class Strategy:
    """A way to use several devices: which frameworks have it, and who launches it."""

    frameworks: tuple[str, ...]
    specs: Callable[[Job], tuple[ContainerSpec, ...]]


STRATEGIES: Mapping[StrategyName, Strategy] = {
    "single": Strategy(("mxnet", "pytorch"), single.specs),
    "ddp": Strategy(("pytorch",), torchrun.specs),
    "kvstore": Strategy(("mxnet",), kvstore.specs),
}

# What a user of the framework expects where several devices train.
DEFAULT_STRATEGY: Mapping[str, StrategyName] = {"mxnet": "kvstore", "pytorch": "ddp"}


def launch(job: Job) -> tuple[ContainerSpec, ...]:
    """The containers of one trial, in the order in which they start."""
    return STRATEGIES[job.trial.strategy].specs(job)
