"""One quantity over time → its figures over a span.

By what a sample says, there are three kinds of quantity:

- a *gauge* says what was at that moment (power, temperature): straight lines between samples;
- a *mean* says what was since the sample before (utilisation of pipes): one level between samples;
- a *counter* says how much there has been (joules, bytes): its rise, on straight lines where the span's edges lie between samples, or
  as a gauge of its rate has it.

Nothing is said about time without samples: a mean is that of the rest, a sum is none, and `why` names the hole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from runner.core.telemetry import NodeSpans, Range, Span, over_time

Floats = npt.NDArray[np.float64]
Value = TypeVar("Value")

# Samples further apart than so many periods leave a hole. A busy host delays a sampler by a few; a lost device leaves out all.
GAP_PERIODS: Final = 5
SECOND: Final = 1.0
# What rounding leaves of a span that is covered wholly, as a share of it.
ROUNDING: Final = 1e-6
NO_SAMPLE: Final = "no sample in the measured span"
RESET: Final = "the counter fell in the measured span: it began anew"


@dataclass(frozen=True)
class Found(Generic[Value]):
    """A figure, and why it is none or only of part of the span; both None never come together."""

    value: Value | None
    why: str | None = None


@dataclass(frozen=True)
class _Pieces:
    """The stretches between samples that lie in a span, cut at its edges: (pieces,) how long each is, and the quantity at its ends."""

    seconds: Floats
    first: Floats
    last: Floats

    @property
    def area(self) -> float:
        """Quantity × seconds under the straight lines: the trapezoidal rule."""
        return float((self.seconds * (self.first + self.last) / 2).sum())


@dataclass(frozen=True)
class Series:
    """Samples of one quantity of one device, in the order in which they came."""

    t: Floats  # (samples,) seconds of the node's monotonic clock
    values: Floats  # (samples,) NaN where the device did not say
    period_s: float  # between samples, as they were asked for

    def gauge(self, span: Span) -> Found[Range]:
        """Smallest, time-weighted mean and largest value of a gauge; of the time that has samples, `why` tells of the rest."""
        if wrong := self._clock(span):
            return Found(None, wrong)
        pieces = self._pieces(span)
        covered = float(pieces.seconds.sum())
        if covered == 0:
            return Found(None, NO_SAMPLE)
        ends = np.concatenate([pieces.first, pieces.last])
        return Found(_range(ends, pieces.area / covered), _hole(covered, span))

    def integral(self, span: Span) -> Found[float]:
        """A gauge × time over the whole span; none where there is a hole in it."""
        if wrong := self._clock(span):
            return Found(None, wrong)
        pieces = self._pieces(span)
        covered = float(pieces.seconds.sum())
        why = NO_SAMPLE if covered == 0 else _hole(covered, span)
        return Found(None, why) if why else Found(pieces.area)

    def mean(self, span: Span) -> Found[Range]:
        """The same as `gauge` for samples that are means since the one before; those count whose middle lies in the span."""
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        starts, ends, levels = t[:-1], t[1:], values[1:]
        overlap = np.clip(np.minimum(ends, span.end) - np.maximum(starts, span.start), 0, None)
        known = (overlap > 0) & (ends - starts <= GAP_PERIODS * self.period_s)
        middle = (starts + ends) / 2
        counts = known & (middle >= span.start) & (middle <= span.end)
        if not counts.any():
            return Found(None, NO_SAMPLE)
        avg = float((overlap * levels)[counts].sum() / overlap[counts].sum())
        return Found(_range(levels[counts], avg), _hole(float(overlap[known].sum()), span))

    def risen(self, span: Span, *, rate: Series | None = None) -> Found[float]:
        """How much a counter rose; none where it fell, or where an edge of the span lies in a hole.

        Where an edge lies between two readings, the rise between them is shared out as `rate` has it, a gauge of it sampled more often.
        """
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        readings = []
        for edge, name in ((span.start, "start"), (span.end, "end")):
            after = int(np.searchsorted(t, edge))
            if after < len(t) and t[after] == edge:
                readings.append(float(values[after]))
                continue
            if after in (0, len(t)) or t[after] - t[after - 1] > GAP_PERIODS * self.period_s:
                return Found(None, f"no reading of the counter at the {name} of the measured span")
            between = Span(start=t[after - 1], end=t[after])
            readings.append(
                float(values[after - 1] + _share(between, edge, rate) * (values[after] - values[after - 1]))
            )
        touched = values[np.searchsorted(t, span.start, side="right") - 1 : np.searchsorted(t, span.end) + 1]
        if (np.diff(touched) < 0).any():
            return Found(None, RESET)
        start, end = readings
        return Found(end - start)

    def rates(self) -> Series:
        """Of a counter, its rise a second as a series of means."""
        t, values = self._known()
        steps = np.diff(t)
        rise = np.divide(np.diff(values), steps, out=np.full(len(steps), np.nan), where=steps > 0)
        # A counter that began anew says nothing of that step.
        rise[rise < 0] = np.nan
        return Series(t, np.concatenate([[np.nan], rise]), self.period_s) if len(t) else self

    def growth(self, span: Span) -> Found[float]:
        """How much a counter of rare events rose from the last reading before the span to the first after it, or the nearest there are."""
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        first = max(0, int(np.searchsorted(t, span.start, side="right")) - 1)
        last = min(int(np.searchsorted(t, span.end)), len(t) - 1)
        if last <= first:
            return Found(None, NO_SAMPLE)
        if (np.diff(values[first : last + 1]) < 0).any():
            return Found(None, RESET)
        return Found(float(values[last] - values[first]))

    def held(self, span: Span) -> Floats:
        """(samples,) seconds of the span in which each sample was the newest; 0 where the device did not say, none in holes."""
        known = np.flatnonzero(np.isfinite(self.values))
        seconds = np.zeros(len(self.t))
        starts, ends = self.t[known[:-1]], self.t[known[1:]]
        overlap = np.clip(np.minimum(ends, span.end) - np.maximum(starts, span.start), 0, None)
        seconds[known[:-1]] = np.where(ends - starts <= GAP_PERIODS * self.period_s, overlap, 0)
        return seconds

    def lowest(self, span: Span, amount: Callable[[Span], Found[float]]) -> Found[float]:
        """The lowest `integral` or rise (`risen`) in a second of the span that begins or ends at a sample."""
        if span.seconds < SECOND:
            return Found(
                None, f"{span.seconds:.3g} s before the job are too short to measure idle power; 1 s is needed"
            )
        t, _ = self._known()
        begins = np.concatenate([t, t - SECOND, [span.start, span.end - SECOND]])
        begins = np.unique(begins[(begins >= span.start) & (begins + SECOND <= span.end)])
        seconds = (amount(Span(start=at, end=at + SECOND)).value for at in begins.tolist())
        found = [one / SECOND for one in seconds if one is not None]
        return Found(min(found)) if found else Found(None, "no second before the job has samples throughout")

    def _known(self) -> tuple[Floats, Floats]:
        known = np.isfinite(self.values)
        return self.t[known], self.values[known]

    def _clock(self, span: Span) -> str | None:
        """Whether time went backwards between the samples that the span needs."""
        inside = np.flatnonzero((self.t >= span.start) & (self.t <= span.end))
        if not len(inside):
            return None
        steps = np.diff(self.t[max(0, inside[0] - 1) : inside[-1] + 2])
        if len(steps) and steps.min() < 0:
            return f"the sampler's clock went back by {-steps.min():.3g} s in the measured span"
        return None

    def _pieces(self, span: Span) -> _Pieces:
        t, values = self._known()
        steps = np.diff(t)
        low, high = np.maximum(t[:-1], span.start), np.minimum(t[1:], span.end)
        kept = (high > low) & (steps <= GAP_PERIODS * self.period_s)
        slope = np.divide(np.diff(values), steps, out=np.zeros_like(steps), where=steps > 0)[kept]
        begin, first = t[:-1][kept], values[:-1][kept]
        low, high = low[kept], high[kept]
        return _Pieces(high - low, first + slope * (low - begin), first + slope * (high - begin))


def _share(span: Span, until: float, rate: Series | None) -> float:
    """The part of what a span brought that it had brought by a moment: as a gauge of the rate has it, evenly where there is none."""
    if rate and (whole := rate.integral(span).value):
        return (rate.integral(Span(start=span.start, end=until)).value or 0.0) / whole
    return (until - span.start) / span.seconds


def _range(values: Floats, avg: float) -> Range:
    """The range of values; a mean that rounding carried beyond them is put back."""
    low, high = float(values.min()), float(values.max())
    return Range(min=low, avg=min(max(avg, low), high), max=high)


def _hole(covered: float, span: Span) -> str | None:
    hole = span.seconds - covered
    if hole <= ROUNDING * span.seconds:
        return None
    return f"no samples for {hole:.3g} s of the measured {span.seconds:.3g} s"


@dataclass(frozen=True)
class Stretches:
    """When a node's figures were measured: from the first counted window to the end of the last, and what is left of that without the pauses."""

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
        ranges, seconds = zip(*known, strict=True)
        lost = self.seconds - math.fsum(seconds)
        hole = f"no samples for {lost:.3g} s of the measured {self.seconds:.3g} s"
        return Found(
            Range(
                min=min(one.min for one in ranges),
                avg=over_time([one.avg for one in ranges], seconds),
                max=max(one.max for one in ranges),
            ),
            hole if len(known) < len(found) else _first(found),
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
