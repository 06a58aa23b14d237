"""Measured trials → the passes under a profiler that come after them. Pure.

Each is a run of its own: a profiler costs what nobody wants in a figure. It trains the same thing on the same devices, so that it shares
the key of the measured trials, and is no baseline of any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from runner.core.events.profile import ProfileKind
from runner.core.request import NARROWED, EngineName, Request
from runner.core.trial import ProfilePass, Trial
from runner.plan.counting import Nsight, choose_counting

ITERATIONS: Final = 5
# Nsight Compute takes some 20 ms a kernel, and a step has hundreds.
REPLAYED_ITERATIONS: Final = 1
# Iterations that are timed together before a profiler begins, where the measured runs choose their windows by their rate.
WINDOW: Final = 5


def passes(
    request: Request,
    trials: Sequence[Trial],
    *,
    asked: Collection[int],
    nsight: Nsight,
    engine: EngineName,
    here: bool,
) -> tuple[Trial, ...]:
    """One pass a kind, scale and way to join the devices.

    Args:
        request: what was asked of the profiler.
        trials: the measured trials.
        asked: scales that were asked for; a baseline that was not is not profiled.
        nsight: what this machine has to read counters with.
        engine: what runs the trials.
        here: whether they run on this machine.
    """
    return tuple(
        trial.model_copy(
            update={
                "probe_bytes": (),
                "window": trial.window or WINDOW,
                "profile": _profile(request, trial, kind, nsight=nsight, engine=engine, here=here),
            }
        )
        for trial in trials
        if trial.repeat == 1 and trial.world_size in asked
        for kind in request.profile
    )


def _profile(
    request: Request, trial: Trial, kind: ProfileKind, *, nsight: Nsight, engine: EngineName, here: bool
) -> ProfilePass:
    counting = choose_counting(nsight, device=trial.device, devices=trial.world_size, engine=engine, here=here)
    replayed = kind == "metrics" and counting.source == "ncu"
    return ProfilePass(
        kind=kind,
        after=request.profile_after,
        iterations=request.profile_iterations or (REPLAYED_ITERATIONS if replayed else ITERATIONS),
        region=request.profile_region if kind in NARROWED else None,
        counting=counting if kind == "metrics" else None,
    )
