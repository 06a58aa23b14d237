"""The PNGs beside the records: the scaling curve, power over time, and where the time of a pass under a profiler went.

Only usable rows are drawn: valid ones filled, degraded ones hollow. Those left out are named under the plot, because a curve that silently
stops reads like one that was never taken further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core import units
from runner.report import picture
from runner.report.page import curves, export, figures
from runner.report.page.model import Figure, Series
from runner.report.profile import summary as summary_of
from runner.report.profile import unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.analysis.summary import Summary
    from runner.core.profile import Profile
    from runner.report.publish import Watched

PICTURE_POINTS = 1500
"""Points of a curve over time: more than a picture has pixels for."""
LINEAR_UP_TO = 8
"""Largest scale drawn on linear axes; beyond it powers of two would crowd at the origin."""


def scaling_png(summary: Summary) -> bytes | None:
    """Throughput against the ideal line, and efficiency below it; None where fewer than two scales have a throughput."""
    return picture.png(
        *scaling_panels(summary),
        title=summary.title,
        lead=(summary.setting, *((summary.wires,) if summary.wires else ())),
        lines=(summary.ran_on, _repeats(summary)),
    )


def scaling_panels(summary: Summary) -> tuple[Figure, ...]:
    """The panels of `scaling_png`."""
    rows = sorted((row for row in summary.rows if row.usable and row.throughput is not None), key=lambda row: row.scale)
    if len(rows) < 2:  # noqa: PLR2004 - a single point is in the table
        return ()
    most = rows[-1].scale
    base = next((row.throughput for row in rows if row.scale == 1), None)
    ideal = Series(name="ideal: n times one device", kind="ideal", x=(1.0, float(most)), y=(base, base and base * most))
    efficient = [row for row in rows if row.efficiency is not None]
    rates = figures.of_rows(rows, {}, lambda row: row.throughput, lambda row: row.throughput_ci95)
    shares = figures.of_rows(
        efficient,
        {},
        lambda row: units.percent(row.efficiency),
        lambda row: row.efficiency_ci95.scaled(100) if row.efficiency_ci95 else None,
    )
    found = []
    for name, what, own, measured, series in (
        ("throughput", f"throughput ({summary.rate_unit})", rows, rates, (ideal,) if base is not None else ()),
        ("efficiency", "efficiency (%)", efficient, shares, ()),
    ):
        named = measured.model_copy(
            update={
                "x": tuple(float(row.scale) for row in own),
                "labels": tuple(_label(measured, at) for at in range(len(own))),
            }
        )
        found.append(
            Figure(
                name=name,
                title=what,
                x=f"{rows[0].device_name}s",
                y=what,
                log=most > LINEAR_UP_TO,
                percent=name == "efficiency",
                series=(named, *series),
                interval=units.INTERVAL if measured.low else "",
                notes=figures.left_out(summary.rows),
            )
        )
    return tuple(found)


def power_png(seen: Watched, *, title: str, ran_on: str) -> bytes | None:
    """What devices did over the time of a run: power and utilisation, each where it is known, the measured windows shaded; None where neither is."""
    return picture.png(
        *curves.over_time(seen, name="power", title=title, points=PICTURE_POINTS),
        title=title,
        lead=("what the devices did over time; the measured windows are shaded",),
        lines=(ran_on,),
    )


def share_png(profile: Profile, *, title: str, lines: Sequence[str]) -> bytes | None:
    """The share of each category of work in the time of a pass; None for a pass without work.

    Args:
        profile: what the pass found.
        title: what ran.
        lines: how and on what, in small print.
    """
    first, *more = summary_of(profile)
    return picture.png(
        *figures.time_shares(profile, name="shares", title=title),
        lead=(first,),
        lines=(*more, *unavailable(profile), *lines),
    )


def _label(measured: Series, at: int) -> str:
    """A value with the digits that its interval supports."""
    return export.value_at(measured, at).split(" ±")[0]


def _repeats(summary: Summary) -> str:
    """How many runs each scale has."""
    counts = sorted({row.repeats for row in summary.rows if row.usable}) or [0]
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{fewest}{units.counted(counts[-1])} of each scale"
