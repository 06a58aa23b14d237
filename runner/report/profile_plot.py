"""A pass under a profiler as a PNG: where its time went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from runner.report import canvas
from runner.report.canvas import BLUE, INK
from runner.report.kept import kept
from runner.report.profile import spelt, summary, unavailable, worked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from runner.core.profile import Profile

BARS: Final = 14
"""Categories that have a bar of their own; the rest share one."""


@kept
def share_png(profile: Profile, *, title: str, ground: Sequence[str]) -> bytes | None:
    """Draw the share of each category of work as a PNG, 1280 pixels wide; None for a pass without work.

    Args:
        profile: what the pass found.
        title: what ran; above the plot, in bold.
        ground: lines on how and on what it ran, in small print.
    """
    return canvas.png(share_figure(profile, title=title, ground=ground))


def share_figure(profile: Profile, *, title: str, ground: Sequence[str]) -> Figure | None:
    """Draw the share of each category of work; None for a pass without any."""
    bars = shares(profile)
    if not bars:
        return None
    height = 2.3 + 0.34 * len(bars)
    figure = canvas.sheet(8, height, top=1 - 0.62 / height, margins=(0.14, 0.08))
    axes = figure.subplots()
    axes.barh(range(len(bars)), [share for _, share in bars], height=0.66, color=BLUE)
    for place, (_, share) in enumerate(bars):
        axes.annotate(
            f"{share:.1f} %",
            (share, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=INK,
            path_effects=canvas.halo(),
        )
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(share for _, share in bars))
    canvas.dress(axes, f"share of the time of all {worked(profile)} (%)", along="x", fontsize=10.5)
    first, *more = summary(profile)
    canvas.title(figure, f"{title}, time by category", first)
    canvas.footer(figure, (*more, *unavailable(profile), *ground), characters=112)
    return figure


def shares(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Name and share in percent of each category that has a bar of its own, and of all others together."""
    bars = [(spelt(one.category), one.share_percent) for one in profile.categories[:BARS]]
    left = math.fsum(one.share_percent for one in profile.categories[BARS:])
    return (*bars, *([(f"{len(profile.categories) - BARS} others", left)] if left else []))
