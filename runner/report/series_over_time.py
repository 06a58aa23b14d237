"""Power and utilisation over time: one curve a device, and when the measured windows were.

Time is each node's own, counted from the start of its measured windows, so that nodes with clocks of their own lie over each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runner.analysis.telemetry.series import GAP_PERIODS
from runner.analysis.telemetry.stretches import stretches

if TYPE_CHECKING:
    import pandas as pd

    from runner.core.telemetry import Telemetry

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One device's quantity: (samples,) seconds since the measured windows began, and its values; NaN where nobody knows."""

    name: str
    seconds: Floats
    values: Floats


def curves(frame: pd.DataFrame, telemetry: Telemetry) -> dict[str, list[Curve]]:
    """By quantity with its unit, a curve a device: of GPUs if GPUs trained, else of the hosts; what nobody knows is left out."""
    found = _of_gpus(frame, telemetry) if telemetry.device == "gpu" else _of_hosts(frame, telemetry)
    return {label: drawn for label, drawn in found.items() if drawn}


def shade(telemetry: Telemetry) -> tuple[tuple[float, float], ...]:
    """From when to when the measured windows of a run lay, in seconds since the first began; those of the slowest node."""
    slowest = stretches(max(telemetry.spans, key=lambda span: span.measured.seconds))
    began = slowest.whole.start
    return tuple((span.start - began, span.end - began) for span in slowest.spans)


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
