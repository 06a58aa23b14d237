"""How figures are written, the same in tables, Markdown and plots: no more digits than the interval supports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runner.grading.model import FEWEST_RUNS
from runner.report.block import ABSENT, Block

if TYPE_CHECKING:
    from runner.grading.model import Interval
    from runner.report.summary import Row, Summary

INTERVAL: Final = "95 % interval over runs"
"""What error bars are."""
PLUS_MINUS: Final = f"± = half the width of the {INTERVAL}, each a process started anew (Student's t); fewer than {FEWEST_RUNS} runs have none"


@dataclass(frozen=True, kw_only=True)
class Cells:
    """One row of the scaling table as text, in the order of its columns; one that is None is left out of the table."""

    devices: str
    runs: str
    throughput: str
    training_time: str
    speedup: str
    efficiency: str
    mfu: str | None
    validity: str

    def in_order(self) -> tuple[str, ...]:
        """The cells from left to right."""
        every = (
            self.devices,
            self.runs,
            self.throughput,
            self.training_time,
            self.speedup,
            self.efficiency,
            self.mfu,
            self.validity,
        )
        return tuple(cell for cell in every if cell is not None)


def headers(summary: Summary) -> Cells:
    """The columns' names, each with its unit."""
    return Cells(
        devices="devices",
        runs="runs",
        throughput=f"{summary.rate_unit} ±",
        training_time="training time (s)",
        speedup="speedup ±",
        efficiency="efficiency (%) ±",
        mfu="MFU (%)" if summary.peak else None,
        validity="validity",
    )


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


def cells(row: Row, *, mfu: bool = False) -> Cells:
    """Lay out one row, with a column for utilisation or without; an unusable one shows no figure."""
    return Cells(
        devices=row.devices,
        runs=runs(row),
        throughput=figure(row.throughput, half_width(row.throughput_ci95)),
        training_time=figure(row.training_time_s),
        speedup=figure(row.speedup, half_width(row.speedup_ci95)),
        efficiency=figure(percent(row.efficiency), half_width(row.efficiency_ci95, scale=100)),
        mfu=figure(row.mfu_percent) if mfu else None,
        validity=row.status + (", superlinear" if row.superlinear else ""),
    )


def percent(fraction: float | None) -> float | None:
    """A share in percent; None of what is not known."""
    return None if fraction is None else 100 * fraction


def milliseconds(seconds: float | None) -> float | None:
    """Seconds in milliseconds; None of what is not known."""
    return None if seconds is None else 1e3 * seconds


def runs(row: Row) -> str:
    """How many runs a row is made from; absent where none may be used."""
    return f"{row.repeats:,}" if row.usable else ABSENT


def half_width(interval: Interval | None, *, scale: float = 1) -> float | None:
    """The figure after `±`, times `scale`; None without an interval."""
    return None if interval is None else interval.half_width * scale


def ends(interval: Interval | None) -> tuple[float | None, float | None]:
    """An interval's lower and upper end; None for both without an interval."""
    return (interval.low, interval.high) if interval else (None, None)


def ends_by_column(of: str, interval: Interval | None) -> dict[str, float | None]:
    """The same as the two columns of a figure that has an interval."""
    low, high = ends(interval)
    return {f"{of}_ci95_low": low, f"{of}_ci95_high": high}


def figure(value: float | None, plus_minus: float | None = None) -> str:
    """Write a value with its half-width.

    The half-width gets two significant digits and the value as many decimals; without one the value gets four significant
    digits. Three decimals at most, thousands separated: ``figure(6525.31, 12.4)`` is ``"6,525 ± 12"``.
    """
    if value is None:
        return ABSENT
    if not plus_minus:  # None, or an interval of no width, which says nothing about digits
        text = f"{value:,.{_decimals(value, significant=4)}f}"
        return text if plus_minus is None else f"{text} ± 0"
    decimals = _decimals(plus_minus, significant=2)
    return f"{value:,.{decimals}f} ± {plus_minus:,.{decimals}f}"


def estimate(value: float | None, interval: Interval | None, *, runs: int) -> str:
    """A figure in running text: with its interval, or where it has none with the number of its runs, as in `6,525 (1 run)`."""
    if value is None or interval is not None:
        return figure(value, half_width(interval))
    return f"{figure(value)} ({counted(runs)})"


def counted(runs: int) -> str:
    """`1 run`, `3 runs`."""
    return f"{runs:,} run{'' if runs == 1 else 's'}"


def _decimals(value: float, *, significant: int) -> int:
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return min(3, max(0, significant - 1 - magnitude))


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
