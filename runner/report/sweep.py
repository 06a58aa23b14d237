"""A sweep over the batch: its table, and each figure against the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from runner.analysis.comparisons.sweeps import Point, Sweep
from runner.analysis.summarize import Status
from runner.core.units import ABSENT, PLUS_MINUS, figure
from runner.report import picture
from runner.report.comparison import ComparisonReport
from runner.report.figures import rate, runs
from runner.report.page.model import Figure, Series, error_bars, series_of
from runner.report.table import Table

LEGEND_GPU = (
    f"batch: of one device; {PLUS_MINUS}; NVML: share of time "
    "in which any kernel ran; SM active, FP32, tensor: means over the measured windows by hardware counters of the sampler; compute: union "
    "of kernels ÷ elapsed without the profiler's overhead, of passes under a profiler; power: of all devices, energy ÷ time"
)
LEGEND_CPU = f"batch: of one device; {PLUS_MINUS}; CPUs: of the whole host, whoever used them; power: of its processors, energy ÷ time"


def sweep(found: Sweep) -> ComparisonReport:
    """Runs and passes under a profiler that differ in batch and precision only."""
    drawn = figures(found)
    rates = [point for point in found.points if point.throughput is not None]
    best = max(rates, key=lambda point: point.throughput or 0.0, default=None)
    most = f"; most at batch {best.batch}, {best.precision}: {figure(best.throughput)} {found.unit}" if best else ""
    columns: dict[str, Callable[[Point], str]] = {
        "precision": lambda point: point.precision,
        "batch": lambda point: str(point.batch),
        "runs": lambda point: runs(point.row) if point.row else ABSENT,
        f"{found.unit} ±": lambda point: rate(point.row) if point.row else ABSENT,
        _utilisation(found): lambda point: _percent(point.utilisation_percent),
        "SM active (%)": lambda point: _percent(point.sm_active_percent),
        "FP32 (%)": lambda point: _percent(point.fp32_percent),
        "tensor (%)": lambda point: _percent(point.tensor_percent),
        "compute (%)": lambda point: _percent(point.compute_percent),
        "power (W)": lambda point: figure(point.power_w),
        f"{found.unit.removesuffix('/s')}/J": lambda point: figure(point.samples_per_joule),
        "MFU (%)": lambda point: figure(point.row.mfu_percent if point.row else None),
        "validity": lambda point: point.status or ABSENT,
    }
    return ComparisonReport(
        chapter="sweeps",
        name=found.name,
        title=f"{found.title}: sweep over the batch",
        lead=f"{len(found.points)} points{most}",
        lines=(found.setting, found.ran_on),
        tables=(Table.of(found.points, columns, title="Sweep over the batch", words=("validity",)),),
        legends=(LEGEND_GPU if found.device == "gpu" else LEGEND_CPU,),
        notes=found.notes,
        figures=drawn,
        pictures={one.name: partial(picture.png, one, lines=(found.setting, found.ran_on)) for one in drawn},
        runs=tuple(dict.fromkeys(run for point in found.points for run in point.runs)),
    )


class _Plot(NamedTuple):
    """One quantity against the batch: the end of its file's name, what it is with its unit, how it was found, and at a point its value."""

    name: str
    axis: str
    words: str
    value: Callable[[Point], float | None]


def figures(found: Sweep) -> tuple[Figure, ...]:
    """Each quantity that is known of two batches at one precision: throughput, utilisation, and what counters and profilers say."""
    drawn = []
    for plot in _plots(found):
        series = tuple(_series(found, plot))
        if max((len(one.x) for one in series), default=0) > 1:
            drawn.append(
                Figure(
                    name=f"{found.name}-{plot.name}",
                    title=f"{plot.axis} against the batch, {found.title}",
                    x="batch of a device",
                    y=plot.axis,
                    log=True,
                    percent=plot.axis.endswith("(%)"),
                    series=series,
                    interval=error_bars(*series) if plot.name == "throughput" else "",
                    notes=(plot.words,) if plot.words else (),
                )
            )
    return tuple(drawn)


def _series(found: Sweep, plot: _Plot) -> Iterator[Series]:
    """A curve for each precision."""
    precisions = dict.fromkeys(point.precision for point in found.points)
    status: Callable[[Point], Status | None] = attrgetter("compute_status" if plot.name == "compute" else "status")
    for precision in precisions:
        own = [point for point in found.points if point.precision == precision and plot.value(point) is not None]
        if own:
            yield series_of(
                own,
                x=lambda point: float(point.batch),
                y=plot.value,
                interval=lambda point: point.row.throughput_ci95 if point.row and plot.name == "throughput" else None,
                degraded=lambda point: status(point) == "degraded",
                runs=lambda point: point.runs,
                # Beside several curves the figures would cover each other.
                label=None if len(precisions) > 1 else lambda point: figure(plot.value(point)),
                name=precision,
            )


def _plots(found: Sweep) -> tuple[_Plot, ...]:
    coarse = (
        "NVML: share of the measured time in which any kernel ran" if found.device == "gpu" else "of the whole host"
    )
    active = "mean over the measured windows, by hardware counters of the sampler"
    union = "union of kernels ÷ elapsed without the profiler's overhead, of passes under a profiler"
    return (
        _Plot("throughput", found.unit, "", attrgetter("throughput")),
        _Plot("utilisation", _utilisation(found), coarse, attrgetter("utilisation_percent")),
        _Plot("sm-active", "SM active (%)", active, attrgetter("sm_active_percent")),
        _Plot("compute", "GPU compute utilisation (%)", union, attrgetter("compute_percent")),
    )


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f}"


def _utilisation(found: Sweep) -> str:
    return "NVML utilisation (%)" if found.device == "gpu" else "CPUs (%)"
