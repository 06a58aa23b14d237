"""Rows and events of a pass → its `Profile`, and the reason for each unavailable figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Final, TypeVar

from runner.analysis.profile import devices, shares
from runner.analysis.profile.devices import Elapsed
from runner.analysis.profile.rows import Rows, prepare
from runner.core.events import Env, Event, FlopCount, Memory, ProfileStart, ProfileStop, Regions
from runner.core.profile import FlopCounted, MemoryUse, Profile, Steps, Unavailable

if TYPE_CHECKING:
    import pandas as pd

NO_GPU: Final = "no NVIDIA device"
GPU_FIGURES: Final = ("GPU compute utilisation", "kernel concurrency", "copies", "calls of the CUDA API")
FP32: Final = "FP32 utilisation"

E = TypeVar("E", bound=Event)


def analyse(frame: pd.DataFrame | None, events: Iterable[Event]) -> Profile | None:
    """Compute the figures of a profiling pass; None if no rank started profiling.

    `frame` is table `kernels` of all ranks with its columns (`workloads/events.py`) and `rank`; None if this kind of pass records no rows.
    """
    events = tuple(events)
    starts, stops = _by_rank(events, ProfileStart), _by_rank(events, ProfileStop)
    if not starts:
        return None
    first = starts[min(starts)]
    rows = prepare(frame)
    iterations = {rank: stop.iterations for rank, stop in stops.items() if rank in starts and stop.iterations}
    on_gpus = len(rows.device_work) > 0
    work = rows.device_work if on_gpus else rows.operators
    seconds = work["duration" if on_gpus else "own"]
    gpus, gpu_total = devices.uses(rows.device_work, dict(_elapsed(starts, stops, events, rows)))
    calls, call_classes = shares.calls(rows.calls)
    all_iterations = sum(iterations.values())
    launches = sum(one.count for one in call_classes if one.call_class == "launch")
    counters = shares.counters(rows.kernels, iterations=all_iterations)
    timed = [event for event in events if isinstance(event, Regions)]
    counted = counters is not None and counters.fp32_percent is not None
    unended = sorted(set(starts) - set(stops))
    return Profile(
        kind=first.kind,
        source=first.source,
        after=first.iteration,
        iterations=max(iterations.values(), default=0),
        region=first.region,
        steady=all(start.steady for start in starts.values()),
        steps=_steps(starts, stops),
        work=("kernels" if on_gpus else "operators") if len(work) else None,
        gpus=gpus,
        gpu_total=gpu_total,
        gaps=devices.gaps(rows.device_work, rows.regions, region=first.region),
        copies=devices.copies(rows.device_work),
        categories=shares.categories(work, seconds),
        kernels=shares.names(work, seconds),
        calls=calls,
        call_classes=call_classes,
        launches_per_step=launches / all_iterations if all_iterations and launches and first.kind != "calls" else None,
        regions=shares.regions(work, seconds, rows.regions, timed, iterations=iterations),
        counters=counters,
        memory=_memory(events),
        flop=_flop(events),
        unavailable=(
            *(
                Unavailable(figure=figure, reason=reason)
                for figure, reason in _unavailable(first, rows, events, utilised=bool(gpus), counted=counted)
            ),
            *(Unavailable(figure=f"elapsed time of rank {one}", reason="it did not end its pass") for one in unended),
        ),
    )


def _by_rank(events: Sequence[Event], kind: type[E]) -> dict[int, E]:
    return {event.rank: event for event in events if isinstance(event, kind)}


def _elapsed(
    starts: dict[int, ProfileStart], stops: dict[int, ProfileStop], events: Sequence[Event], rows: Rows
) -> Iterator[tuple[int, Elapsed]]:
    """Yield each rank's profiled seconds, of the region if only one was profiled; skips ranks without an iteration."""
    for rank, stop in stops.items():
        start = starts.get(rank)
        if start is None or not stop.iterations:
            continue
        steps_s = math.fsum(stop.step_seconds)
        excess_s = steps_s - fmean(start.plain_step_seconds) * stop.iterations if start.plain_step_seconds else None
        profiled_s = _region_seconds(rank, start.region, events, rows) if start.region else steps_s
        if profiled_s:
            if excess_s is not None and start.region and steps_s:
                excess_s *= profiled_s / steps_s  # the profiler also slows down the rest of the step
            yield rank, Elapsed(iterations=stop.iterations, profiled_s=profiled_s, excess_s=excess_s)


def _region_seconds(rank: int, region: str, events: Sequence[Event], rows: Rows) -> float | None:
    """Seconds of one region of one rank: as timed by the program, else the sum of its passages; None if neither is known."""
    for event in events:
        if isinstance(event, Regions) and event.rank == rank and event.name == region:
            return math.fsum(event.seconds)
    mine = rows.regions[(rows.regions["rank"] == rank) & (rows.regions["name"] == region)]
    return float(mine["duration"].sum()) if len(mine) else None


def _steps(starts: dict[int, ProfileStart], stops: dict[int, ProfileStop]) -> Steps | None:
    """Mean step time with and without the profiler, over all steps of all ranks; None unless every rank ended its pass."""
    profiled = [seconds for stop in stops.values() for seconds in stop.step_seconds]
    plain = [seconds for start in starts.values() for seconds in start.plain_step_seconds]
    if not profiled or set(stops) != set(starts):
        return None
    plain_s = fmean(plain) if plain else None
    return Steps(
        plain_step_s=plain_s,
        profiled_step_s=fmean(profiled),
        overhead_percent=100 * (fmean(profiled) / plain_s - 1) if plain_s else None,
    )


def _memory(events: Sequence[Event]) -> tuple[MemoryUse, ...]:
    phases = ("model", *shares.ORDER)
    used = [event for event in events if isinstance(event, Memory)]
    used.sort(key=lambda e: (e.rank, e.device, phases.index(e.phase) if e.phase in phases else len(phases)))
    return tuple(MemoryUse.model_validate(event, from_attributes=True) for event in used)


def _flop(events: Sequence[Event]) -> tuple[FlopCounted, ...]:
    """The counts of the lowest rank that counted; all ranks count the same network."""
    counts = [event for event in events if isinstance(event, FlopCount)]
    first = min((event.rank for event in counts), default=None)
    return tuple(FlopCounted.model_validate(event, from_attributes=True) for event in counts if event.rank == first)


def _unavailable(
    start: ProfileStart, rows: Rows, events: Sequence[Event], *, utilised: bool, counted: bool
) -> Iterator[tuple[str, str]]:
    """Yield each unavailable figure and the reason."""
    if rows.dropped:
        yield "some rows", f"{rows.dropped} have no duration and are left out"
    if start.kind in {"memory", "region", "calls"}:
        yield "kernels", f"a pass for {start.kind} traces none; ask for PROFILE=kernels"
        return
    of_gpus = any(env.device != "cpu" for env in _by_rank(events, Env).values())
    if not of_gpus and not (rows.device_work["device"] >= 0).any():
        yield from ((figure, NO_GPU) for figure in (*GPU_FIGURES, FP32))
        return
    kernels = rows.kernels
    if not len(kernels):
        yield from ((figure, f"{start.source} shows no kernels") for figure in GPU_FIGURES)
    elif not utilised:
        untimed = kernels["start"].isna().all()
        reason = "the rows of the kernels have no start" if untimed else "no rank told its elapsed time"
        yield from ((figure, reason) for figure in GPU_FIGURES[:2])
    if not counted:
        yield FP32, "no hardware counters of kernels here; PROFILE=metrics reads them with ncu"
