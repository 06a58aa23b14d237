"""Passes under a profiler as PNGs: where the time of one went, and how a figure goes with the batch size over several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from runner.core.units import figure as written
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


@kept
def sweep_png(
    points: Sequence[tuple[int, float, str]], *, title: str, setting: str, axis: str, small_print: Sequence[str]
) -> bytes | None:
    """Draw a figure against the batch size as a PNG, 1280 pixels wide; None without a point.

    Args:
        points: (samples of a device's batch, value, label of its curve).
        title: above the plot, in bold.
        setting: below the title.
        axis: what the value is, with its unit: "GPU compute utilisation (%)". One that ends so is drawn up to 100.
        small_print: lines under the plot.
    """
    return canvas.png(sweep_figure(points, title=title, setting=setting, axis=axis, small_print=small_print))


def sweep_figure(
    points: Sequence[tuple[int, float, str]], *, title: str, setting: str, axis: str, small_print: Sequence[str]
) -> Figure | None:
    """Draw a figure against the batch size, a curve for each label; None without a point."""
    if not points:
        return None
    figure = canvas.sheet(8, 5, top=0.87, margins=(0.18, 0.1))
    axes = figure.subplots()
    percent = axis.endswith("(%)")
    labels = list(dict.fromkeys(label for _, _, label in points))
    for number, label in enumerate(labels):
        curve = sorted((batch, value) for batch, value, other in points if other == label)
        colour = canvas.SERIES[number % len(canvas.SERIES)]
        axes.plot(
            [batch for batch, _ in curve], [value for _, value in curve], "o-", color=colour, linewidth=1.5, label=label
        )
        if len(labels) == 1:  # beside several curves the figures would cover each other
            for batch, value in curve:
                axes.annotate(
                    f"{value:.1f}" if percent else written(value),
                    (batch, value),
                    xytext=(0, 8),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9.5,
                    color=INK,
                    path_effects=canvas.halo(),
                )
    batches = sorted({batch for batch, _, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xlim(batches[0] / 1.35, batches[-1] * 1.35)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlabel("batch of a device", fontsize=11, color=INK)
    axes.set_ylim(0, 105 if percent else 1.15 * max(value for _, value, _ in points))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    canvas.dress(axes, axis, along="y")
    if len(labels) > 1:
        # Beside the plot: curves near 100 % leave no room in it.
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=10)
    canvas.title(figure, title, setting)
    canvas.footer(figure, small_print, characters=112)
    return figure
