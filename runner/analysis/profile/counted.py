"""What follows from who read the counters in a pass of kind `metrics`. Pure.

The sampler's are in its samples, which telemetry finds by the windows that are made here. Of other passes there are none: a profiler's own
work, and kernels that are run again and again, are nothing that a machine does by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.core.events import Event
from runner.core.events.profile import ProfileStart, ProfileStop
from runner.core.events.training import Window
from runner.core.profile import Profile
from runner.core.trial import Trial


def stretches(trial: Trial, events: Sequence[Event]) -> tuple[Window, ...]:
    """One window a rank, from the beginning of its pass to the end; none unless every rank ended its own.

    Args:
        trial: any trial; a measured one has none.
        events: all events of its run.
    """
    counting = trial.profile.counting if trial.profile else None
    if counting is None or counting.source == "ncu":
        return ()
    starts = {event.rank: event for event in events if isinstance(event, ProfileStart)}
    stops = {event.rank: event for event in events if isinstance(event, ProfileStop)}
    if len(stops) != trial.processes:
        return ()
    return tuple(
        Window(
            event="window",
            rank=rank,
            t=stop.t,
            received=stop.received,
            container=stop.container,
            index=0,
            start=starts[rank].t,
            iterations=stop.iterations,
            samples=stop.iterations * trial.global_batch // trial.processes,
            seconds=stop.t - starts[rank].t,
        )
        for rank, stop in sorted(stops.items())
    )


def attributed(trial: Trial, profile: Profile | None) -> Profile | None:
    """Name Nsight Compute as the source of what it told; the program within only knows that somebody may be looking."""
    if profile is None or trial.profile is None or trial.profile.ncu is None:
        return profile
    return profile.model_copy(update={"source": "ncu"})
