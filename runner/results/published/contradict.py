"""Every printed figure of a source, held against the others of the same source.

A printed figure stands for all that round to it: 13.5 for 13.45 to 13.55. Two agree if what they stand for overlaps. Approximate figures
(`almost`) are not checked. A ratio whose last digit was cut off instead of rounded is found under a name of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from runner.results.published.derive import devices, number
from runner.results.published.findings import Finding, Ratio
from runner.results.published.model import Check, Conditions, Figure, Published

# What may differ as well in the run that a ratio is against, once this differs.
_FREES: Final = {
    "gpus": frozenset({"nodes", "global_batch", "batch", "system", "network"}),
    "build": frozenset({"version", "container"}),
    "framework": frozenset({"build", "version", "container"}),
    "device": frozenset({"gpu"}),
    "precision": frozenset({"batch_per_gpu", "global_batch", "batch"}),
}
_NO_CONDITION: Final = frozenset({"versus", "note", "run"})


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two figures of a source that can't both be right as printed.

    Attributes:
        check: the rule that found it (`model.Check`).
        figure: id of the figure, or finding, that was held against others.
        printed, recomputed: it, and what the others make of it, in `unit`.
        against: ids of the others.
        difference: (printed - recomputed) ÷ recomputed, of the figures as printed.
    """

    check: Check
    figure: str
    printed: float
    recomputed: float
    unit: str
    against: tuple[str, ...]
    difference: float


@dataclass(frozen=True)
class Span:
    """Everything that rounds to a printed figure, ends included."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, printed: Decimal) -> Span:
        """Half a unit of the last printed digit to both sides: ``Span.of(Decimal("13.5"))`` is 13.45 to 13.55."""
        half = _last_digit(printed) / 2
        return cls(Fraction(printed) - half, Fraction(printed) + half)

    @classmethod
    def cut(cls, printed: Decimal) -> Span:
        """One unit of the last printed digit upwards: ``Span.cut(Decimal("13.5"))`` is 13.5 to 13.6."""
        return cls(Fraction(printed), Fraction(printed) + _last_digit(printed))

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __truediv__(self, other: Span) -> Span:
        return Span(self.low / other.high, self.high / other.low)

    def times(self, factor: Fraction, *, less: int = 0) -> Span:
        """Both ends times a factor, and less a number."""
        return Span(self.low * factor - less, self.high * factor - less)

    def meets(self, other: Span) -> bool:
        """Whether some figure rounds to both."""
        return self.low <= other.high and other.low <= self.high


def _last_digit(printed: Decimal) -> Fraction:
    exponent = printed.as_tuple().exponent
    return Fraction(10) ** exponent if isinstance(exponent, int) else Fraction(0)


Beside = Mapping[tuple[str, Conditions], Figure]
"""Exact figures by metric and conditions."""


def contradictions(published: Published) -> tuple[Contradiction, ...]:
    """Everything in a source that its own figures contradict, in the order of the rules and of the file."""
    figures = published.figures
    exact = [one for one in figures if isinstance(one.value, Decimal) and not one.approx and one.bound is None]
    beside = {(figure.metric, figure.conditions): figure for figure in exact}
    return (
        *_ratios(exact),
        *_sums(exact, beside),
        *_per_device(exact, beside),
        *_twice(figures),
        *_ranges(exact, beside),
        *_batches(figures),
        *_findings(exact, published.findings),
    )


def _ratios(exact: Sequence[Figure]) -> Iterator[Contradiction]:
    """Speedups, ratios, gains and efficiencies against the throughputs that they are of, where the source has exactly those two."""
    for figure in exact:
        conditions = figure.conditions
        if figure.unit not in {"x", "%"} or conditions.versus is None:
            continue
        wanted = {name: (value,) for name, value in conditions.stated.items() if name not in _NO_CONDITION}
        other = conditions.versus.stated
        freed = {name for changed in other for name in _FREES.get(changed, frozenset())}
        above = _only(exact, wanted)
        below = _only(exact, {name: value for name, value in wanted.items() if name not in freed} | other)
        if above is None or below is None or above is below:
            continue
        ratio = Span.of(number(above)) / Span.of(number(below))
        quotient = Fraction(number(above)) / Fraction(number(below))
        if figure.metric == "scaling_efficiency":
            factor, less = Fraction(100 * devices(below), devices(above)), 0
        elif figure.metric == "throughput_gain":
            factor, less = Fraction(100), 100
        else:
            factor, less = Fraction(1), 0
        made, printed = ratio.times(factor, less=less), number(figure)
        if not made.meets(Span.of(printed)):
            check: Check = "cut" if made.meets(Span.cut(printed)) else "ratio"
            yield _found(check, figure, quotient * factor - less, (above, below))


def _only(
    exact: Sequence[Figure], wanted: Mapping[str, tuple[object, ...]], metric: str = "throughput"
) -> Figure | None:
    """The one figure of a metric under these conditions; None if there is none, or more than one."""
    found = [
        figure
        for figure in exact
        if figure.metric == metric
        and all(getattr(figure.conditions, name, None) in values for name, values in wanted.items())
    ]
    return found[0] if len(found) == 1 else None


def _sums(exact: Sequence[Figure], beside: Beside) -> Iterator[Contradiction]:
    """Forward and backward pass against both together."""
    for figure in exact:
        if figure.metric == "time_forward_backward":
            forward, backward = (beside.get((f"time_{of}", figure.conditions)) for of in ("forward", "backward"))
            if forward and backward:
                total = Span.of(number(forward)) + Span.of(number(backward))
                if not total.meets(Span.of(number(figure))):
                    yield _found("sum", figure, Fraction(number(forward) + number(backward)), (forward, backward))


def _per_device(exact: Sequence[Figure], beside: Beside) -> Iterator[Contradiction]:
    """The throughput of a device against that of all of them."""
    for figure in exact:
        total = beside.get(("throughput", figure.conditions))
        if figure.metric == "throughput_per_gpu" and total and devices(total):
            share = Fraction(1, devices(total))
            if not Span.of(number(total)).times(share).meets(Span.of(number(figure))):
                yield _found("per device", figure, Fraction(number(total)) * share, (total,))


def _twice(figures: Sequence[Figure]) -> Iterator[Contradiction]:
    """A figure that is printed once more, under the same conditions."""
    first: dict[Hashable, Figure] = {}
    for figure in figures:
        if figure.approx or not isinstance(figure.value, Decimal):
            continue
        bare = figure.conditions.model_copy(update={"note": None})
        earlier = first.setdefault((figure.metric, figure.unit, bare), figure)
        if earlier is figure or earlier.bound is not None:
            continue
        value, known = figure.value, number(earlier)
        if figure.bound == ">":
            wrong = Span.of(known).high <= Fraction(value)
        elif figure.bound == "<":
            wrong = Span.of(known).low >= Fraction(value)
        else:
            wrong = not Span.of(known).meets(Span.of(value))
        if wrong:
            yield _found("twice", figure, Fraction(known), (earlier,))


def _ranges(exact: Sequence[Figure], beside: Beside) -> Iterator[Contradiction]:
    """Means that lie outside their smallest or largest value."""
    for figure in exact:
        if not figure.metric.endswith("_avg"):
            continue
        mean, stem = Span.of(number(figure)), figure.metric.removesuffix("_avg")
        least, most = (beside.get((f"{stem}_{end}", figure.conditions)) for end in ("min", "max"))
        if least and mean.high < Span.of(number(least)).low:
            yield _found("range", figure, Fraction(number(least)), (least,))
        if most and mean.low > Span.of(number(most)).high:
            yield _found("range", figure, Fraction(number(most)), (most,))


def _batches(figures: Sequence[Figure]) -> Iterator[Contradiction]:
    """Global batches that are not the devices' batches together."""
    for figure in figures:
        a_device, together = figure.conditions.batch_per_gpu, figure.conditions.global_batch
        sum_of_them = (a_device or 0) * devices(figure)
        if together and sum_of_them and sum_of_them != together:
            yield Contradiction(
                check="batch",
                figure=figure.id,
                printed=float(together),
                recomputed=float(sum_of_them),
                unit="images",
                against=(figure.id,),
                difference=together / sum_of_them - 1,
            )


def _findings(exact: Sequence[Figure], findings: Sequence[Finding]) -> Iterator[Contradiction]:
    """Ratios that the source states, against the two figures of its own that they are of, where it has exactly those."""
    for finding in findings:
        predicate = finding.predicate
        if not isinstance(predicate, Ratio):
            continue
        everywhere = predicate.for_all.stated
        above = _only(exact, everywhere | predicate.num.stated, predicate.metric)
        below = _only(exact, everywhere | predicate.den.stated, predicate.metric)
        if above is None or below is None:
            continue
        ratio = Fraction(number(above)) / Fraction(number(below))
        if abs(ratio / Fraction(predicate.value) - 1) > Fraction(predicate.rel_tol):
            yield Contradiction(
                check="finding",
                figure=finding.id,
                printed=float(predicate.value),
                recomputed=float(ratio),
                unit="x",
                against=(above.id, below.id),
                difference=float(Fraction(predicate.value) / ratio - 1),
            )


def _found(check: Check, figure: Figure, recomputed: Fraction, against: Sequence[Figure]) -> Contradiction:
    printed = Fraction(number(figure))
    return Contradiction(
        check=check,
        figure=figure.id,
        printed=float(printed),
        recomputed=float(recomputed),
        unit=figure.unit,
        against=tuple(other.id for other in against),
        difference=float(printed / recomputed - 1) if recomputed else float("inf"),
    )
