"""Power and utilisation over time as a PNG: one curve a device, the measured windows shaded.

Time is each node's own, counted from the start of its measured windows, so that nodes with clocks of their own lie over each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from runner.analysis.telemetry.series import GAP_PERIODS
from runner.analysis.telemetry.stretches import stretches
from runner.report import canvas
from runner.report.canvas import GRID, INK, QUIET, SERIES
from runner.report.kept import kept

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runner.core.telemetry import Telemetry

Floats = npt.NDArray[np.float64]
_NAMED_UP_TO: Final = 7
"""More devices than that have no legend: their colours repeat."""


@dataclass(frozen=True)
class Curve:
    """One device's quantity: (samples,) seconds since the measured windows began, and its values; NaN where nobody knows."""

    name: str
    seconds: Floats
    values: Floats


@kept
def power_png(frame: pd.DataFrame, telemetry: Telemetry, *, title: str, ground: str) -> bytes | None:
    """Draw what devices did over time as a PNG 1440 pixels wide; None where there is nothing to draw."""
    return canvas.png(power_figure(frame, telemetry, title=title, ground=ground))


def power_figure(frame: pd.DataFrame, telemetry: Telemetry, *, title: str, ground: str) -> Figure | None:
    """Draw what devices did over time.

    Args:
        frame: table `telemetry` of one run.
        telemetry: figures of that run, with its spans.
        title: what ran.
        ground: what it ran on, in small print.

    Returns:
        A panel of power and one of utilisation, each where it is known: of GPUs if GPUs trained, else of the hosts' CPUs. None where
        neither is.
    """
    if not telemetry.spans:
        return None
    panels = curves(frame, telemetry)
    if not panels:
        return None
    height = 1.4 + 2.2 * len(panels)
    figure = canvas.sheet(9, height, top=1 - 0.62 / height, margins=(0.14, 0.08))
    every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    measured = shade(telemetry)
    for axes, (label, drawn) in zip(every, panels.items(), strict=True):
        _panel(axes, label, drawn, measured)
    if 1 < len(telemetry.trained) <= _NAMED_UP_TO:
        every[0].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9.5)
    every[-1].set_xlabel("seconds since the measured windows began (shaded)", fontsize=11, color=INK)
    figure.align_ylabels()
    canvas.title(figure, title, "what the devices did over time")
    canvas.footer(figure, [ground], characters=124)
    return figure


def curves(frame: pd.DataFrame, telemetry: Telemetry) -> dict[str, list[Curve]]:
    """By quantity with its unit, a curve a device: of GPUs if GPUs trained, else of the hosts; what nobody knows is left out."""
    found = _of_gpus(frame, telemetry) if telemetry.device == "gpu" else _of_hosts(frame, telemetry)
    return {label: drawn for label, drawn in found.items() if drawn}


def shade(telemetry: Telemetry) -> tuple[tuple[float, float], ...]:
    """From when to when the measured windows of a run lay, in seconds since the first began; those of the slowest node."""
    slowest = stretches(max(telemetry.spans, key=lambda span: span.measured.seconds))
    began = slowest.whole.start
    return tuple((span.start - began, span.end - began) for span in slowest.spans)


def _panel(axes: Axes, label: str, drawn: list[Curve], measured: Sequence[tuple[float, float]]) -> None:
    for start, end in measured:
        axes.axvspan(start, end, color=GRID, zorder=0)
    for number, curve in enumerate(drawn):
        colour = SERIES[number % len(SERIES)]
        axes.plot(curve.seconds, curve.values, color=colour, linewidth=1.2, label=curve.name, zorder=2)
    canvas.dress(axes, label, along="y")
    axes.grid(visible=True, axis="y", color=QUIET, linewidth=0.4, alpha=0.5)  # to be seen on the shade
    axes.set_ylim(0, 105 if label.endswith("(%)") else None)


def _of_gpus(frame: pd.DataFrame, telemetry: Telemetry) -> dict[str, list[Curve]]:
    devices = [(gpu.node, f"gpu{gpu.index}", f"GPU {gpu.index}") for gpu in telemetry.gpus]
    return {
        "power (W)": _curves(frame, telemetry, devices, "power_w"),
        "utilisation (%)": _curves(frame, telemetry, devices, "utilisation_percent"),
    }


def _of_hosts(frame: pd.DataFrame, telemetry: Telemetry) -> dict[str, list[Curve]]:
    devices = [(host.node, "host", "host") for host in telemetry.hosts]
    mean = frame["core_percent"].map(lambda cell: np.nan if np.ndim(cell) == 0 else np.mean(cell))
    return {
        "power (W)": [_rate(curve) for curve in _curves(frame, telemetry, devices, "energy_j")],
        "CPUs (%)": _curves(frame.assign(core_percent=mean), telemetry, devices, "core_percent"),
    }


def _curves(frame: pd.DataFrame, telemetry: Telemetry, devices: list[tuple[str, str, str]], column: str) -> list[Curve]:
    """A column of some devices; those that have at least two samples of it."""
    found = []
    starts = {span.node: span.measured.start for span in telemetry.spans}
    for node, device, name in devices:
        rows = frame[(frame["node"] == node) & (frame["device"] == device)]
        values = rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
        known = np.isfinite(values)
        if known.sum() > 1:
            words = f"{node} {name}" if len(starts) > 1 else name
            seconds = rows["t"].to_numpy(dtype=np.float64)[known] - starts[node]
            found.append(_broken(Curve(words, seconds, values[known]), telemetry.hz))
    return found


def _broken(curve: Curve, hz: float | None) -> Curve:
    """The curve without a line over holes in the samples, where nobody knows what was."""
    holes = 1 + np.flatnonzero(np.diff(curve.seconds) > GAP_PERIODS / (hz or 1))
    return Curve(curve.name, np.insert(curve.seconds, holes, np.nan), np.insert(curve.values, holes, np.nan))


def _rate(curve: Curve) -> Curve:
    """Of a counter, its rise a second between samples; nothing where it began anew."""
    steps, rise = np.diff(curve.seconds), np.diff(curve.values)
    rate = np.divide(rise, steps, out=np.full(len(steps), np.nan), where=(steps > 0) & (rise >= 0))
    return Curve(curve.name, curve.seconds[1:], rate)
