"""How far a study is, and how long the rest may take."""

from __future__ import annotations


class Pace:
    """Told how long each request took; those still to come are taken to be like them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seconds: list[float] = []

    def done(self, seconds: float) -> None:
        """One more is done."""
        self._seconds.append(seconds)

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest may take; None before the first is done."""
        if not self._seconds:
            return None
        return sum(self._seconds) / len(self._seconds) * (self._total - len(self._seconds))

    def said(self) -> str:
        """`[3/22, about 6 min left]`, of the one that begins now."""
        place = f"{len(self._seconds) + 1}/{self._total}"
        if self.left_s is None:
            return f"[{place}]"
        minutes = max(1, round(self.left_s / 60))
        return f"[{place}, about {minutes} min left]"
