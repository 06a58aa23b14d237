"""Formats figures with as many digits as their interval supports, alike in terminals, Markdown and plots."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from runner.core.measurement import FEWEST_RUNS

if TYPE_CHECKING:
    from runner.core.measurement import Interval

ABSENT = "\N{EN DASH}"
"""Written in place of a missing figure: an empty cell could be mistaken for a zero."""

INTERVAL: Final = "95 % interval over runs"
"""Caption of error bars."""

PLUS_MINUS: Final = f"± = half the width of the {INTERVAL}, each a process started anew (Student's t); fewer than {FEWEST_RUNS} runs have none"


def percent(fraction: float | None) -> float | None:
    """Convert a fraction to percent; None if unknown."""
    return None if fraction is None else 100 * fraction


def milliseconds(seconds: float | None) -> float | None:
    """Convert seconds to milliseconds; None if unknown."""
    return None if seconds is None else 1e3 * seconds


def half_width(interval: Interval | None, *, scale: float = 1) -> float | None:
    """Return the figure after `±`, times `scale`; None without an interval."""
    return None if interval is None else interval.half_width * scale


def interval_ends(interval: Interval | None) -> tuple[float | None, float | None]:
    """Return an interval's lower and upper end; None for both without an interval."""
    return (interval.low, interval.high) if interval else (None, None)


def interval_columns(of: str, interval: Interval | None) -> dict[str, float | None]:
    """Return both ends as two columns, named after the figure `of`."""
    low, high = interval_ends(interval)
    return {f"{of}_ci95_low": low, f"{of}_ci95_high": high}


def figure(value: float | None, plus_minus: float | None = None) -> str:
    """Format a value with its half-width.

    The half-width gets two significant digits, and the value the same number of decimals. Without a half-width the value gets four
    significant digits. At most three decimals; thousands are separated: ``figure(6525.31, 12.4)`` is ``"6,525 ± 12"``.
    """
    if value is None:
        return ABSENT
    if not plus_minus:  # None, or an interval of width 0, which implies no number of digits
        text = f"{value:,.{_decimals(value, significant=4)}f}"
        return text if plus_minus is None else f"{text} ± 0"
    decimals = _decimals(plus_minus, significant=2)
    return f"{value:,.{decimals}f} ± {plus_minus:,.{decimals}f}"


def estimate(value: float | None, interval: Interval | None, *, runs: int) -> str:
    """Format a figure for running text: with its interval, or else with the number of runs, as in `6,525 (1 run)`."""
    if value is None or interval is not None:
        return figure(value, half_width(interval))
    return f"{figure(value)} ({counted(runs)})"


_PLURALS: Final = {"matrix": "matrices", "profiling pass": "profiling passes"}


def counted(number: int, unit: str = "run") -> str:
    """`1 run`, `3 runs`, `3 matrices`."""
    return f"{number:,} {unit if number == 1 else _PLURALS.get(unit, unit + 's')}"


def _decimals(value: float, *, significant: int) -> int:
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return min(3, max(0, significant - 1 - magnitude))
