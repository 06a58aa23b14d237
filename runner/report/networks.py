"""Several networks on one device and on more: the types of the report, its tables as Markdown and CSV, and their efficiencies as a PNG.

Nothing here is computed: `runner/analysis/comparisons/networks.py` makes these values.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from runner.analysis.comparisons.networks import Network, Networks
from runner.analysis.summary import Row
from runner.core.measurement import FEWEST_RUNS
from runner.core.units import INTERVAL, PLUS_MINUS, ends, figure, half_width, milliseconds, percent
from runner.report import canvas
from runner.report.block import Block, section
from runner.report.figures import PARTS_LEGEND
from runner.report.figures import runs as counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runner.core.measurement import StepParts

LEGEND: Final = (
    f"batch: of one device, of all with strong scaling; {PLUS_MINUS}; speedup, efficiency: to one device; power: of all devices, energy ÷ "
    f"time; {PARTS_LEGEND}"
)
_PARTS: Final[dict[str, Callable[[StepParts], float | None]]] = {
    "step (ms)": lambda parts: parts.step_s,
    "compute": lambda parts: parts.compute_s,
    "stragglers": lambda parts: parts.stragglers_s,
    "communication": lambda parts: parts.communication_s,
    "exchange alone": lambda parts: parts.exchange_alone_s,
}


def reports(found: Networks) -> dict[str, str | bytes | None]:
    """The reports by the names of their files."""
    return {
        f"{found.name}.md": markdown(found),
        f"{found.name}.csv": to_csv(found),
        f"{found.name}.png": canvas.png(efficiency_figure(found)),
    }


def markdown(found: Networks) -> str:
    """It as a section in Markdown."""
    return section(
        f"{found.title}: scaling", (*found.how, found.ground), (block(found),), legend=LEGEND, notes=found.notes
    )


def block(found: Networks) -> Block:
    """The table; columns of which nothing is known are left out."""
    rows = [(network, row) for network in found.networks for row in network.rows]
    units = " / ".join(sorted({network.unit for network in found.networks}))
    every: dict[str, list[str]] = {
        "network": [network.label for network, _ in rows],
        "batch": [f"{network.batch:,}" for network, _ in rows],
        "devices": [row.devices for _, row in rows],
        "runs": [counted(row) for _, row in rows],
        f"{units} ±": [figure(row.throughput, half_width(row.throughput_ci95)) for _, row in rows],
        "speedup ±": [figure(row.speedup, half_width(row.speedup_ci95)) for _, row in rows],
        "efficiency (%) ±": [
            figure(percent(row.efficiency), half_width(row.efficiency_ci95, scale=100)) for _, row in rows
        ],
        **{header: [figure(milliseconds(_part(row, read))) for _, row in rows] for header, read in _PARTS.items()},
        "power (W)": [figure(row.telemetry.power_w if row.telemetry else None) for _, row in rows],
        "samples/J": [figure(row.telemetry.samples_per_joule if row.telemetry else None) for _, row in rows],
        "validity": [row.status + (", superlinear" if row.superlinear else "") for _, row in rows],
    }
    return Block.of(every)


def to_csv(found: Networks) -> str:
    """One line a network and scale, full precision, seconds, an empty field where there is no figure."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    parts = [f"{header.partition(' (')[0].replace(' ', '_')}_s" for header in _PARTS]
    lines.writerow(
        (
            *("network", "batch", "scale", "device", "throughput", "throughput_ci95_low", "throughput_ci95_high"),
            *("unit", "speedup", "efficiency", "efficiency_ci95_low", "efficiency_ci95_high"),
            *(*parts, "repeats", "status", "runs"),
        )
    )
    for network in found.networks:
        for row, runs in zip(network.rows, network.runs, strict=True):
            lines.writerow(
                (
                    *(network.label, network.batch, row.scale, row.device, row.throughput, *ends(row.throughput_ci95)),
                    *(row.unit, row.speedup, row.efficiency, *ends(row.efficiency_ci95)),
                    *(*(_part(row, read) for read in _PARTS.values()), row.repeats, row.status, " ".join(runs)),
                )
            )
    return text.getvalue()


def efficiency_figure(found: Networks) -> Figure | None:
    """Draw each network's efficiency against the number of devices; None unless one has it at two scales."""
    curves = list(_curves(found))
    if not curves:
        return None
    sheet = canvas.sheet(8, 5, top=0.84, margins=(0.18, 0.1))
    axes = sheet.subplots()
    for number, (network, rows) in enumerate(curves):
        _draw(axes, network, rows, colour=canvas.SERIES[number % len(canvas.SERIES)])
    drawn = [row for _, rows in curves for row in rows]
    scales = sorted({row.scale for row in drawn})
    axes.axhline(100, linestyle="--", color=canvas.QUIET, linewidth=1.5)
    axes.set_xscale("log", base=2)
    axes.set_xlim(scales[0] / 1.15, scales[-1] * 1.15)
    axes.set_xticks(scales, [str(scale) for scale in scales])
    axes.minorticks_off()
    values = [100 * row.efficiency for row in drawn if row.efficiency is not None]
    # Ten per cent more than there is, below and above: a difference of one per cent is what is looked for.
    axes.set_ylim(max(0.0, min(values) - 10), max(100.0, *values) + 2)
    axes.set_xlabel(f"{drawn[0].device_name}s", fontsize=11, color=canvas.INK)
    canvas.dress(axes, "efficiency (%)", along="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=10)
    canvas.title(sheet, f"{found.title}: scaling", *found.how)
    canvas.footer(
        sheet, (found.ground, f"bars: {INTERVAL}, where there are {FEWEST_RUNS}; hollow: degraded"), characters=112
    )
    return sheet


def _curves(found: Networks) -> Iterator[tuple[Network, list[Row]]]:
    for network in found.networks:
        rows = [row for row in network.rows if row.efficiency is not None]
        if len(rows) > 1:
            yield network, rows


def _draw(axes: Axes, network: Network, rows: list[Row], *, colour: str) -> None:
    places = [row.scale for row in rows]
    percents = [100 * (row.efficiency or 0.0) for row in rows]
    axes.plot(places, percents, "-", color=colour, linewidth=1.5, label=f"{network.label}, batch {network.batch:,}")
    for row, share in zip(rows, percents, strict=True):
        ends = row.efficiency_ci95
        around = [[max(0.0, share - 100 * ends.low)], [max(0.0, 100 * ends.high - share)]] if ends else None
        axes.errorbar(
            [row.scale],
            [share],
            yerr=around,
            fmt="o",
            color=colour,
            markerfacecolor="white" if row.status == "degraded" else colour,
            capsize=4,
        )


def _part(row: Row, read: Callable[[StepParts], float | None]) -> float | None:
    return read(row.parts) if row.parts else None
