"""How figures are written: as many digits as the interval supports, the same in terminals, Markdown and plots."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from runner.core.measurement import FEWEST_RUNS

if TYPE_CHECKING:
    from runner.core.measurement import Interval

ABSENT = "\N{EN DASH}"
"""Stands where there is no figure, so that an empty cell is never mistaken for a zero."""

INTERVAL: Final = "95 % interval over runs"
"""What error bars are."""

PLUS_MINUS: Final = f"± = half the width of the {INTERVAL}, each a process started anew (Student's t); fewer than {FEWEST_RUNS} runs have none"


def percent(fraction: float | None) -> float | None:
    """A share in percent; None of what is not known."""
    return None if fraction is None else 100 * fraction


def milliseconds(seconds: float | None) -> float | None:
    """Seconds in milliseconds; None of what is not known."""
    return None if seconds is None else 1e3 * seconds


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
