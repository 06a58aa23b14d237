"""How figures are written, the same in tables, Markdown and plots: no more digits than the interval supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from runner.core.measurement import FEWEST_RUNS
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width, milliseconds, percent
from runner.report.block import Block

if TYPE_CHECKING:
    from runner.analysis.summary import Row, Summary


def scaling(summary: Summary) -> Block:
    """The scaling table; an unusable row shows no figure, and utilisation has a column where a peak is known."""
    columns: dict[str, Callable[[Row], str]] = {
        "devices": lambda row: row.devices,
        "runs": runs,
        f"{summary.rate_unit} ±": lambda row: figure(row.throughput, half_width(row.throughput_ci95)),
        "training time (s)": lambda row: figure(row.training_time_s),
        "speedup ±": lambda row: figure(row.speedup, half_width(row.speedup_ci95)),
        "efficiency (%) ±": lambda row: figure(percent(row.efficiency), half_width(row.efficiency_ci95, scale=100)),
        **({"MFU (%)": lambda row: figure(row.mfu_percent)} if summary.peak else {}),
        "validity": lambda row: row.status + (", superlinear" if row.superlinear else ""),
    }
    rows = tuple(tuple(cell(row) for cell in columns.values()) for row in summary.rows)
    return Block(headers=tuple(columns), rows=rows, words=("validity",))


PARTS = ("devices", "step (ms)", "input", "compute", "stragglers", "communication", "exchange alone")
"""The columns of the table of parts; all times in milliseconds."""
PARTS_LEGEND = (
    "a step = input + compute + stragglers + communication; compute: on one device all but the input, on several a pass without any "
    "exchange, mean of the ranks; stragglers: what the slowest rank takes longer; communication: the exchange that compute did not hide, and "
    "the update; exchange alone: all gradients by the probe, no part of the sum"
)


def parts(summary: Summary) -> Block | None:
    """Where the time of a step went, one line a scale that tells of it; None where none does."""
    found = []
    for row in summary.rows:
        if row.parts is None:
            continue
        one = row.parts
        seconds = (one.step_s, one.input_s, one.compute_s, one.stragglers_s, one.communication_s, one.exchange_alone_s)
        found.append((row.devices, *(figure(milliseconds(part)) for part in seconds)))
    return Block(headers=PARTS, rows=tuple(found)) if found else None


def runs(row: Row) -> str:
    """How many runs a row is made from; absent where none may be used."""
    return f"{row.repeats:,}" if row.usable else ABSENT


def interval_legend(summary: Summary) -> str:
    """Name what `±` is; where there is none, say why."""
    if any(row.throughput_ci95 for row in summary.rows):
        return PLUS_MINUS
    return f"no ±: an interval is over runs, from {FEWEST_RUNS} on (REPEAT={FEWEST_RUNS})"


def peak_legend(summary: Summary) -> tuple[str, ...]:
    """Say what utilisation is, and of what; nothing where none is known."""
    if summary.peak is None:
        return ()
    return (f"MFU = model FLOP/s ÷ dense peak, which is {summary.peak}",)


def notes(summary: Summary) -> tuple[str, ...]:
    """One sentence for each thing that the figures alone would hide."""
    found = []
    for row in summary.rows:
        if row.reasons:
            found.append(f"{row.devices} {row.status}: {'; '.join(row.reasons)}")
        if row.superlinear:
            found.append(
                f"{row.devices} superlinear: more than {row.scale} times as fast as one device; look first for a baseline that "
                "was throttled or short of input, or a working set that fits a cache only when it is split"
            )
        if row.above_peak:
            found.append(
                f"{row.devices}: no MFU, as the model's FLOP/s are above the peak; look first for an algorithm with fewer multiplications "
                "than the definition (Winograd's), another precision than the one asked for, or cores that others used while the peak was measured"
            )
    return (*found, *summary.notes)
