"""Trial → containers, pure: launchers in `launchers.py`, what they share in `job.py`; `runner/core/strategies.py` maps strategies to launchers."""

from __future__ import annotations

from runner.core.container_spec import ContainerSpec
from runner.core.strategies import STRATEGIES
from runner.plan.launch.job import Job, node_containers
from runner.plan.launch.launchers import LAUNCHERS


def launch(job: Job) -> tuple[ContainerSpec, ...]:
    """The containers of one trial in starting order, the stand-ins for emulated nodes first; marks those whose network others join."""
    specs = (*node_containers(job), *LAUNCHERS[STRATEGIES[job.trial.strategy].launcher](job))
    networks = {spec.network for spec in specs}
    return tuple(
        spec.model_copy(update={"joined": True}) if f"container:{spec.name}" in networks else spec for spec in specs
    )
