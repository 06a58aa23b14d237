"""Where the time of a step went: input, compute, stragglers and communication, or why these can't be told apart. Pure.

A step of a synchronous job ends when its slowest rank has computed and all gradients have been exchanged. What a rank computes when
nobody exchanges anything was timed beside the job (event `compute`), and so was the exchange alone (event `bandwidth`). A step that is
shorter than those passes, or longer by less than they differ among themselves, does not say how much of it was the exchange.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import numpy as np

from runner.analysis.grading.metrics import common_windows
from runner.core.events import Bandwidth, Compute, Event, RunStart, Window
from runner.core.measurement import Exchange, StepParts


def exchanges(events: Sequence[Event]) -> tuple[Exchange, ...]:
    """The probe of a training program, in the order of sizes; nothing of what a benchmark's log says, which times no single exchange."""
    found = [
        Exchange(
            operation=event.operation or "unknown",
            size_bytes=event.size_bytes,
            seconds=statistics.median(event.seconds),
            algbw_gb_s=event.algbw_gb_s,
            busbw_gb_s=event.busbw_gb_s,
            wrong=event.wrong,
        )
        for event in events
        if isinstance(event, Bandwidth) and event.seconds
    ]
    return tuple(sorted(found, key=lambda exchange: exchange.size_bytes))


def exchange_seconds(probe: Sequence[Exchange], size_bytes: int) -> float | None:
    """Seconds that an exchange of `size_bytes` would take by itself; None without a probe.

    Between two sizes that were timed it lies on the line through both. Beyond the largest, bandwidth is that of the largest; below
    the smallest, it takes as long as the smallest, whose time is latency.
    """
    if not probe:
        return None
    largest = probe[-1]
    if size_bytes > largest.size_bytes:
        return largest.seconds * size_bytes / largest.size_bytes
    sizes, seconds = [one.size_bytes for one in probe], [one.seconds for one in probe]
    return float(np.interp(size_bytes, sizes, seconds))


# Of a step: an input that is waited for no longer than this costs no more, whatever compute hides of it.
NO_WAIT: Final = 0.01


def step_parts(
    events: Sequence[Event], *, first_window: int, seconds: float, gradient_bytes: int | None
) -> StepParts | None:
    """Attribute the windows from `first_window` on, which took `seconds`; None where the program told nothing but its windows.

    `gradient_bytes` is what a device hands over to be exchanged in one step.
    """
    ranks = common_windows([event for event in events if isinstance(event, Window)])
    counted = [windows[first_window:] for windows in ranks.values()]
    steps = sum(window.iterations for window in counted[0]) if counted else 0
    passes = [event.seconds for event in events if isinstance(event, Compute)]
    probe = exchanges(events)
    # Of each window the longest wait of the ranks.
    waits = [[window.input_seconds for window in windows] for windows in zip(*counted, strict=True)]
    told = steps > 0 and not any(None in own for own in waits)
    waited = math.fsum(max(filter(None, own), default=0.0) for own in waits) / steps if told else None
    if not steps or (waited is None and not passes and not probe):
        return None
    alone = exchange_seconds(probe, gradient_bytes) if gradient_bytes is not None else None
    devices = next((event.world_size for event in events if isinstance(event, RunStart)), len(ranks))
    known = StepParts(step_s=seconds / steps, input_waited_s=waited, exchange_alone_s=alone)
    return known.model_copy(update=_one_device(known, passes) if devices == 1 else _several_devices(known, passes))


Parts = dict[str, float | str | None]


def _one_device(told: StepParts, passes: Sequence[Sequence[float]]) -> Parts:
    """Nothing is exchanged: what is not input is compute."""
    waited, step_s = told.input_waited_s, told.step_s
    if waited is None:
        return {"inseparable": "the program does not tell how long it waited for input"}
    if waited <= NO_WAIT * step_s:
        unhidden = min(waited, step_s)
    elif passes:
        unhidden = min(waited, max(0.0, step_s - statistics.median(passes[0])))
    else:
        return {"inseparable": "the loop waited for input while the device worked, and no pass was timed without input"}
    return {"input_s": unhidden, "compute_s": step_s - unhidden}


def _several_devices(told: StepParts, passes: Sequence[Sequence[float]]) -> Parts:
    """What a step took beyond its input and the slowest rank's pass is communication, where it is more than those passes differ by."""
    if told.input_waited_s is None or not passes:
        missing = "how long it waited for input" if passes else "how long a pass without any exchange takes"
        return {"inseparable": f"the program does not tell {missing}"}
    medians = [statistics.median(own) for own in passes]
    slowest, mean = max(medians), statistics.fmean(medians)
    spread = max(max(own) - min(own) for own in passes)
    beyond = told.step_s - slowest
    if beyond <= spread:
        return {
            "inseparable": (
                f"a step takes {1e3 * told.step_s:.4g} ms, a pass without any exchange {1e3 * slowest:.4g} ms, give or take {1e3 * spread:.2g}"
            )
        }
    unhidden = min(told.input_waited_s, beyond)
    return {
        "input_s": unhidden,
        "compute_s": mean,
        "stragglers_s": slowest - mean,
        "communication_s": beyond - unhidden,
    }
