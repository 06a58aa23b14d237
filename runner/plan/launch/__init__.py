"""Launchers: small pure files, each turning a `Job` into the `ContainerSpec`s that run it; `runner/core/strategies.py` says which strategy is whose."""

from __future__ import annotations

from importlib import import_module

from runner.core.container_spec import ContainerSpec
from runner.core.strategies import STRATEGIES
from runner.plan.launch.job import Job, node_containers


def launch(job: Job) -> tuple[ContainerSpec, ...]:
    """The containers of one trial, in the order in which they start; what stands for emulated nodes comes first."""
    launcher = import_module(f"{__name__}.{STRATEGIES[job.trial.strategy].launcher}")
    return (*node_containers(job), *launcher.specs(job))
