"""What a pass under a profiler found: rows of kernels, copies, calls and operators in, the `Profile` of a record out.

    model       the types of a `Profile`
    intervals   unions, overlaps and concurrency of stretches of time
    classify    names of kernels, calls and operators → categories (`kernels.yaml`)
    rows        the table `kernels`, cleaned, with categories and regions beside each row
    devices     what each GPU did and when it idled; copies
    shares      who took the time: categories, kernels, calls, regions; FP32 utilisation
    figures     all of it together

Pure: the same rows and events always give the same figures, on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from runner.core.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

    from runner.core.events import Event

__all__ = ["Profile", "analyse"]


def analyse(frame: pd.DataFrame | None, events: Iterable[Event]) -> Profile | None:
    """Work out the figures of a profile pass.

    Args:
        frame: table `kernels` of all ranks with its columns (`workloads/events.py`) and `rank`; None where the kind of pass has no
            rows.
        events: all events of the run; those of profilers are picked out.

    Returns:
        None where no rank began to profile.
    """
    from runner.analysis.profile.figures import profile_of  # noqa: PLC0415  (pandas takes half a second; who only reads records needs none)

    return profile_of(frame, events)
