"""Runs and passes that differ in batch: the types of a sweep, its table as Markdown, and each figure against the batch as a PNG.

Nothing here is computed: `runner/analysis/comparisons/sweeps.py` makes these values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from runner.analysis.comparisons.sweeps import Point, Sweep
from runner.analysis.summary import Status
from runner.core.measurement import Interval
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width
from runner.report.block import escaped, line, listed
from runner.report.figures import runs
from runner.report.profile_plot import sweep_png

LEGEND = (
    f"batch: of one device; {PLUS_MINUS}; NVML: share of time "
    "in which any kernel ran; SM active, FP32, tensor: means over the measured windows by hardware counters of the sampler; compute: union "
    "of kernels ÷ elapsed without the profiler's overhead, of passes under a profiler; power: of all devices, energy ÷ time"
)
_LEGEND_CPU = f"batch: of one device; {PLUS_MINUS}; CPUs: of the whole host, whoever used them; power: of its processors, energy ÷ time"


@dataclass(frozen=True)
class Plot:
    """One figure against the batch.

    Attributes:
        name: the end of its file's name.
        axis: what it is, with its unit.
        words: how it was found; empty where the axis says all.
        value, status: at a point.
        interval: of the value at a point; None for a figure of a kind that has none.
    """

    name: str
    axis: str
    words: str
    value: Callable[[Point], float | None]
    status: Callable[[Point], Status | None] = attrgetter("status")
    interval: Callable[[Point], Interval | None] | None = None


def reports(sweep: Sweep) -> dict[str, str | bytes]:
    """Every report of a sweep by the name of its file: the table, and a plot of each figure that is known of two batches."""
    found: dict[str, str | bytes] = {f"{sweep.name}.md": markdown(sweep)}
    for plot in plots(sweep):
        drawn = _png(sweep, plot)
        if drawn is not None:
            found[f"{sweep.name}-{plot.name}.png"] = drawn
    return found


def markdown(sweep: Sweep) -> str:
    """A section: what ran where, the table, and every reservation; ends with a newline."""
    shown = columns(sweep)
    align = [":--" if header in ("precision", "validity") else "--:" for header in shown]
    lines = [
        f"### {escaped(sweep.title)}: sweep over the batch",
        "",
        f"{escaped(sweep.setting)}  ",
        escaped(sweep.ground),
        "",
        *(line(row) for row in (tuple(shown), align, *zip(*shown.values(), strict=True))),
        "",
        legend(sweep),
    ]
    if sweep.notes:
        lines += ["", *listed(sweep.notes)]
    return "\n".join(lines) + "\n"


def columns(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Every column of the table that holds a figure, with its cells from top to bottom."""
    return {header: cells for header, cells in _columns(sweep).items() if any(cell != ABSENT for cell in cells)}


def legend(sweep: Sweep) -> str:
    """What the columns are."""
    return LEGEND if sweep.device == "gpu" else _LEGEND_CPU


def _columns(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Every column that a sweep can have, with its cells."""
    cells: dict[str, Callable[[Point], str]] = {
        "precision": lambda point: point.precision,
        "batch": lambda point: str(point.batch),
        "runs": lambda point: runs(point.row) if point.row else ABSENT,
        f"{sweep.unit} ±": _throughput,
        _utilisation(sweep): lambda point: _percent(point.utilisation_percent),
        "SM active (%)": lambda point: _percent(point.sm_active_percent),
        "FP32 (%)": lambda point: _percent(point.fp32_percent),
        "tensor (%)": lambda point: _percent(point.tensor_percent),
        "compute (%)": lambda point: _percent(point.compute_percent),
        "power (W)": lambda point: figure(point.power_w),
        f"{sweep.unit.removesuffix('/s')}/J": lambda point: figure(point.samples_per_joule),
        "MFU (%)": lambda point: figure(point.row.mfu_percent if point.row else None),
        "validity": lambda point: point.status or ABSENT,
    }
    return {header: tuple(cell(point) for point in sweep.points) for header, cell in cells.items()}


def _throughput(point: Point) -> str:
    return figure(point.throughput, half_width(point.row.throughput_ci95) if point.row else None)


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f}"


def _utilisation(sweep: Sweep) -> str:
    return "NVML utilisation (%)" if sweep.device == "gpu" else "CPUs (%)"


def plots(sweep: Sweep) -> tuple[Plot, ...]:
    """The figures whose curves have two batches at one precision or more."""
    return tuple(plot for plot in _plots(sweep) if max(map(len, _batches(sweep, plot).values()), default=0) > 1)


def _batches(sweep: Sweep, plot: Plot) -> dict[str, set[int]]:
    """By precision, the batches of which the figure is known."""
    batches: dict[str, set[int]] = {}
    for point in sweep.points:
        if plot.value(point) is not None:
            batches.setdefault(point.precision, set()).add(point.batch)
    return batches


def _plots(sweep: Sweep) -> Iterator[Plot]:
    rate_ci95 = attrgetter("row.throughput_ci95")
    yield Plot("throughput", sweep.unit, "", lambda point: point.throughput, interval=rate_ci95)
    coarse = (
        "NVML: share of the measured time in which any kernel ran" if sweep.device == "gpu" else "of the whole host"
    )
    yield Plot("utilisation", _utilisation(sweep), coarse, lambda point: point.utilisation_percent)
    active = "mean over the measured windows, by hardware counters of the sampler"
    yield Plot("sm-active", "SM active (%)", active, lambda point: point.sm_active_percent)
    union = "union of kernels ÷ elapsed without the profiler's overhead, of passes under a profiler"
    compute = "GPU compute utilisation (%)"
    yield Plot("compute", compute, union, lambda point: point.compute_percent, lambda point: point.compute_status)


def _png(sweep: Sweep, plot: Plot) -> bytes | None:
    """The plot; None where there is nothing to draw."""
    known = [(point, value) for point in sweep.points if (value := plot.value(point)) is not None]
    batches = _batches(sweep, plot)
    # A curve alone has no legend to say what it is of.
    setting = sweep.setting if len(batches) > 1 else f"{sweep.setting}, {next(iter(batches))}"
    degraded = [f"{point.precision} {point.batch}" for point, _ in known if plot.status(point) == "degraded"]
    small_print = [plot.words, sweep.ground, f"degraded: {', '.join(degraded)}" if degraded else ""]
    return sweep_png(
        [(point.batch, value, point.precision) for point, value in known],
        title=sweep.title,
        setting=setting,
        axis=plot.axis,
        small_print=[text for text in small_print if text],
    )
