"""Trial → containers, pure: `launchers.py` has one function a strategy, `job.py` what they share; `runner/core/strategies.py` says which is whose."""

from __future__ import annotations

from runner.core.container_spec import ContainerSpec
from runner.core.strategies import STRATEGIES
from runner.plan.launch.job import Job, node_containers
from runner.plan.launch.launchers import LAUNCHERS


def launch(job: Job) -> tuple[ContainerSpec, ...]:
    """The containers of one trial, in the order in which they start; what stands for emulated nodes comes first."""
    specs = (*node_containers(job), *LAUNCHERS[STRATEGIES[job.trial.strategy].launcher](job))
    networks = {spec.network for spec in specs}
    return tuple(
        spec.model_copy(update={"joined": True}) if f"container:{spec.name}" in networks else spec for spec in specs
    )
