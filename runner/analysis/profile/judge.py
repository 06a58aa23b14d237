"""Whether a pass under a profiler may be used: every rank began and ended it, it trained, and what its kind promises is there. Pure.

Nothing is said of throughput, scaling or wires: a profiler stands in the way of all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.analysis.grading import metrics
from runner.core.events import Event
from runner.core.events.profile import Memory, ProfileStart, ProfileStop, Regions
from runner.core.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

# Rows that are work; the others say where in a step it belongs, or who asked for it.
WORK = ("kernel", "copy", "set", "op")


def faults(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> list[str]:
    """What is missing or wrong, a sentence each; empty for a pass that did what was asked.

    Args:
        trial: with its profile.
        events: all events of the run.
        kernels: table `kernels`; None where there is none.
    """
    assert trial.profile is not None  # noqa: S101 - what the caller promises
    stops = {event.rank: event for event in events if isinstance(event, ProfileStop)}
    if len(stops) != trial.processes:
        return [f"{len(stops)} of {trial.processes} ranks ended their pass under the profiler"]
    found = [
        f"rank {rank} made {stop.iterations} of {trial.profile.iterations} iterations under the profiler"
        for rank, stop in sorted(stops.items())
        if stop.iterations < trial.profile.iterations
    ]
    return found + _losses(events) + _missing(trial, events, kernels)


def doubts(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> list[str]:
    """What makes a pass less than it seems, and not wrong."""
    assert trial.profile is not None  # noqa: S101 - what the caller promises
    found = []
    if not all(event.steady for event in events if isinstance(event, ProfileStart)):
        found.append("the rate had not settled when the profiler began")
    of_gpus = trial.profile.kind == "kernels" and trial.device == "gpu" and kernels is not None
    if of_gpus and kernels is not None and not (kernels["kind"] == "kernel").any():
        found.append("the profiler saw operators alone, and no kernel of a GPU")
    return found


def _losses(events: Sequence[Event]) -> list[str]:
    """Losses that are not there or not finite: what was profiled is no training then."""
    curves = metrics.losses(events).values()
    if not any(curves):
        return ["no loss was reported"]
    broken = [curve.index(None) for curve in curves if None in curve]
    return [f"the loss is not finite at iteration {min(broken)}; a smaller learning rate may train"] if broken else []


def _missing(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> list[str]:
    """What the kind of a pass promises and some rank did not tell."""
    assert trial.profile is not None  # noqa: S101 - what the caller promises
    kind = trial.profile.kind
    if kind == "metrics" and not trial.profile.ncu:
        return []  # the node's sampler has them, in another table
    what = {
        "kernels": "what ran",
        "metrics": "any kernel's counters; the end of the log says what kept ncu from reading them",
        "memory": "its memory",
        "region": "how long its regions took",
    }[kind]
    if kind in ("kernels", "metrics"):
        told = set() if kernels is None else set(kernels.loc[kernels["kind"].isin(WORK), "rank"])
    else:
        told = {event.rank for event in events if isinstance(event, Memory if kind == "memory" else Regions)}
    silent = [str(rank) for rank in range(trial.processes) if rank not in told]
    return [f"rank {' and '.join(silent)} did not tell {what}"] if silent else []
