"""The measured span without the pauses in it: one figure over several stretches of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runner.analysis.telemetry.series import Floats, Found, Series
from runner.core.telemetry import NodeSpans, Range, Span, over_time


@dataclass(frozen=True)
class Stretches:
    """When a node's figures were measured.

    Attributes:
        whole: from the first counted window to the end of the last.
        spans: what is left of that without the pauses, in order.
    """

    whole: Span
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """How long they are together."""
        return math.fsum(span.seconds for span in self.spans)

    def overall(self, ask: Callable[[Span], Found[Range]]) -> Found[Range]:
        """The range over all stretches, of `Series.gauge` or `Series.mean`: the mean by their seconds, of those that have samples."""
        found = [ask(span) for span in self.spans]
        if len(found) == 1:
            return found[0]
        known = [(one.value, span.seconds) for one, span in zip(found, self.spans, strict=True) if one.value]
        if not known:
            return found[0]
        seconds = math.fsum(weight for _, weight in known)
        lost = self.seconds - seconds
        return Found(
            Range(
                min=min(one.min for one, _ in known),
                avg=over_time([one.avg for one, _ in known], [weight for _, weight in known]),
                max=max(one.max for one, _ in known),
            ),
            f"no samples for {lost:.3g} s of the measured {self.seconds:.3g} s"
            if len(known) < len(found)
            else _first(found),
        )

    def total(self, ask: Callable[[Span], Found[float]]) -> Found[float]:
        """The sum over all stretches, of `Series.integral` or `Series.risen`; none unless each has one."""
        found = [ask(span) for span in self.spans]
        values = [one.value for one in found if one.value is not None]
        return Found(math.fsum(values)) if len(values) == len(found) else Found(None, _first(found))

    def held(self, series: Series) -> Floats:
        """`Series.held` over all stretches."""
        seconds: Floats = np.sum([series.held(span) for span in self.spans], axis=0)
        return seconds


def stretches(node: NodeSpans) -> Stretches:
    """Cut the pauses out of a node's measured span."""
    edges = [node.measured.start]
    for pause in node.pauses:
        edges += [pause.start, pause.end]
    edges.append(node.measured.end)
    spans = tuple(Span(start=start, end=end) for start, end in zip(edges[::2], edges[1::2], strict=True))
    return Stretches(whole=node.measured, spans=spans)


def _first(found: list[Found[Range]] | list[Found[float]]) -> str | None:
    return next((one.why for one in found if one.why), None)
