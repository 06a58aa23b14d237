"""How far a node's clock is from this machine's, as its engine shows it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

_CALLS: Final = 3
_TIME: Final = re.compile(r"(.*?)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_APART_S: Final = 2.0
"""Events of all nodes are put in one order by their clocks, and windows last some seconds."""


@dataclass(frozen=True)
class Clock:
    """A node's clock less this machine's, in seconds, and by how much that may be wrong."""

    offset_s: float
    error_s: float

    @property
    def apart_s(self) -> float:
        """Seconds that the clocks are apart at the least."""
        return max(0.0, abs(self.offset_s) - self.error_s)

    def __str__(self) -> str:
        way = "ahead of" if self.offset_s >= 0 else "behind"
        return f"{abs(self.offset_s):.3f} s {way} this machine's (± {self.error_s:.3f} s)"


def read_clock(
    ask: Callable[[], dict[str, Any]], *, now: Callable[[], float] = time.time
) -> tuple[dict[str, Any], Clock]:
    """Ask an engine about itself some times, and of these take the clock's offset from the quickest answer.

    The engine looks at its clock between our question and its answer: half of the time between them is the error (Cristian 1989,
    "Probabilistic clock synchronization").
    """
    answers = []
    for _ in range(_CALLS):
        before = now()
        info = ask()
        after = now()
        offset_s = parse_time(info["SystemTime"]) - (before + after) / 2
        answers.append((info, Clock(offset_s=offset_s, error_s=(after - before) / 2)))
    return min(answers, key=lambda answer: answer[1].error_s)


def parse_time(text: str) -> float:
    """Seconds since 1970 of a time as Go writes it, with up to nine digits after the point (RFC 3339)."""
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no time of RFC 3339")
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)


def clock_refusal(name: str, clock: Clock) -> str | None:
    """Why a node's clock can't be used; None when it can."""
    if clock.apart_s <= _APART_S:
        return None
    return (
        f"{name}: its clock is {clock}, and a job's events are put in one order by their clocks; "
        "run chrony or ntpd on it and on this machine"
    )
