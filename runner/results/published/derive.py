"""Checks a source's figures against each other: recomputes speedups and efficiencies from its throughputs, and finds contradictions.

A printed figure represents every number that rounds to it: 13.5 represents 13.45 to 13.55. Two figures agree if these spans overlap.
Approximate figures (`almost`) are not checked. A ratio that was truncated instead of rounded is reported under its own name, `cut`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from runner.results.published.findings import Finding, Ratio
from runner.results.published.model import Check, Conditions, Figure, Published

Scaling = Literal["weak", "strong", "unstated"]

# Conditions that may differ between two runs of one scaling curve.
_VARIES: Final = frozenset({"gpus", "nodes", "global_batch", "batch_per_gpu", "network", "note", "run"})


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A throughput relative to that of the fewest devices under otherwise equal conditions.

    Efficiency is speedup ÷ ratio of the numbers of devices, never clamped. `weak` scaling keeps the batch of a device, `strong` scaling the
    global batch.
    """

    figure: Figure
    baseline: Figure
    speedup: float
    efficiency_percent: float
    scaling: Scaling


def scaled(published: Published) -> tuple[Scaled, ...]:
    """Compute speedup and efficiency of every throughput on a scaling curve, that of the fewest devices included."""
    families = {system.id: system.family or system.id for system in published.hardware.systems}
    curves = {figure.id: _curves(figure, families) for figure in published.figures if _is_rate(figure)}
    groups: dict[tuple[Scaling, Hashable], list[Figure]] = defaultdict(list)
    for figure in published.figures:
        for curve in curves.get(figure.id, ()):
            groups[curve].append(figure)
    found = []
    for figure in published.figures:
        for curve in curves.get(figure.id, ()):
            baseline = min(groups[curve], key=devices)
            if devices(baseline) < max(map(devices, groups[curve])):
                found.append(_against(baseline, figure, scaling=curve[0]))
                break
    return tuple(found)


def number(figure: Figure) -> Decimal:
    """Return the single value of a figure. Raises TypeError if it has several."""
    if not isinstance(figure.value, Decimal):
        raise TypeError(f"{figure.id} has several values")
    return figure.value


def _is_rate(figure: Figure) -> bool:
    known = figure.conditions.gpus is not None and figure.conditions.gpus > 0
    of_jobs = figure.metric == "throughput" or (figure.metric == "throughput_per_gpu" and figure.kind != "derived")
    return known and of_jobs and isinstance(figure.value, Decimal) and figure.bound is None


def devices(figure: Figure) -> int:
    """Return the number of GPUs of all nodes; 0 if there are none, or if they are not stated."""
    return figure.conditions.gpus or 0


def _curves(figure: Figure, families: Mapping[str, str]) -> tuple[tuple[Scaling, Hashable], ...]:
    """Return keys that the runs of one scaling curve share: first that of weak, then that of strong scaling."""
    conditions = figure.conditions
    same = {name: value for name, value in conditions.stated.items() if name not in _VARIES}
    if conditions.system:
        same["system"] = families.get(conditions.system, conditions.system)
    rest = (figure.metric, *sorted((name, str(value)) for name, value in same.items()))
    if conditions.batch_per_gpu is not None:
        return (("weak", (rest, conditions.batch_per_gpu)),)
    if conditions.global_batch is not None:
        a_device = Fraction(conditions.global_batch, devices(figure))
        return ("weak", (rest, a_device)), ("strong", (rest, conditions.global_batch))
    return (("unstated", rest),)


def _against(baseline: Figure, figure: Figure, *, scaling: Scaling) -> Scaled:
    times = Fraction(devices(figure), devices(baseline))
    ratio = Fraction(number(figure)) / Fraction(number(baseline))
    speedup = ratio * times if figure.metric == "throughput_per_gpu" else ratio
    return Scaled(
        figure=figure,
        baseline=baseline,
        speedup=float(speedup),
        efficiency_percent=float(100 * speedup / times),
        scaling=scaling,
    )


# If this condition differs in the run that a ratio refers to, these may differ as well.
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
    """A printed figure, or finding, that differs from its value recomputed from other figures of the source, `against`.

    `difference` is (printed - recomputed) ÷ recomputed.
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
    """Closed interval of all numbers that round to a printed figure."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, printed: Decimal) -> Span:
        """Extend a figure by half a unit of its last digit to both sides: ``Span.of(Decimal("13.5"))`` is 13.45 to 13.55."""
        half = _last_digit(printed) / 2
        return cls(Fraction(printed) - half, Fraction(printed) + half)

    @classmethod
    def cut(cls, printed: Decimal) -> Span:
        """Extend a truncated figure by one unit of its last digit upwards: ``Span.cut(Decimal("13.5"))`` is 13.5 to 13.6."""
        return cls(Fraction(printed), Fraction(printed) + _last_digit(printed))

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __truediv__(self, other: Span) -> Span:
        return Span(self.low / other.high, self.high / other.low)

    def times(self, factor: Fraction, *, less: int = 0) -> Span:
        """Multiply both ends by a factor, then subtract `less`."""
        return Span(self.low * factor - less, self.high * factor - less)

    def overlaps(self, other: Span) -> bool:
        """Whether two spans overlap: some number rounds to both figures."""
        return self.low <= other.high and other.low <= self.high


def _last_digit(printed: Decimal) -> Fraction:
    exponent = printed.as_tuple().exponent
    return Fraction(10) ** exponent if isinstance(exponent, int) else Fraction(0)


ExactFigures = Mapping[tuple[str, Conditions], Figure]
"""Exact figures by metric and conditions."""
Recomputed = tuple[Figure, Span, Fraction, tuple[Figure, ...]]
"""A figure, its recomputed value (as a span, and from the others as printed), and the others."""


def contradictions(published: Published) -> tuple[Contradiction, ...]:
    """Find all contradictions between a source's figures, in the order of the checks, then of the file."""
    figures = published.figures
    exact = [one for one in figures if isinstance(one.value, Decimal) and not one.approx and one.bound is None]
    by_conditions = {(figure.metric, figure.conditions): figure for figure in exact}
    return (
        *_disagreeing("ratio", _ratios(exact)),
        *_disagreeing("sum", _sums(exact, by_conditions)),
        *_disagreeing("per device", _per_device(exact, by_conditions)),
        *_twice(figures),
        *_ranges(exact, by_conditions),
        *_batches(figures),
        *_findings(exact, published.findings),
    )


def _disagreeing(check: Check, found: Iterable[Recomputed]) -> Iterator[Contradiction]:
    """Figures whose span does not overlap their recomputed span."""
    for figure, made, value, against in found:
        if not made.overlaps(Span.of(number(figure))):
            cut = check == "ratio" and made.overlaps(Span.cut(number(figure)))
            yield _found("cut" if cut else check, figure, value, against)


def _ratios(exact: Sequence[Figure]) -> Iterator[Recomputed]:
    """Recompute speedups, ratios, gains and efficiencies for which the source has exactly two matching throughputs."""
    for figure in exact:
        conditions = figure.conditions
        if figure.unit not in {"x", "%"} or conditions.versus is None:
            continue
        wanted = {name: (value,) for name, value in conditions.stated.items() if name not in _NO_CONDITION}
        other = conditions.versus.stated
        freed = {name for changed in other for name in _FREES.get(changed, frozenset())}
        above = _single(exact, wanted)
        below = _single(exact, {name: value for name, value in wanted.items() if name not in freed} | other)
        if above is None or below is None or above is below:
            continue
        factor, less = Fraction(1), 0
        if figure.metric == "scaling_efficiency":
            factor = Fraction(100 * devices(below), devices(above))
        elif figure.metric == "throughput_gain":
            factor, less = Fraction(100), 100
        made = (Span.of(number(above)) / Span.of(number(below))).times(factor, less=less)
        yield figure, made, _quotient(above, below) * factor - less, (above, below)


def _quotient(above: Figure, below: Figure) -> Fraction:
    return Fraction(number(above)) / Fraction(number(below))


def _single(
    exact: Sequence[Figure], wanted: Mapping[str, tuple[object, ...]], metric: str = "throughput"
) -> Figure | None:
    """Return the only figure of a metric under these conditions; None if there is none, or more than one."""
    found = [
        figure
        for figure in exact
        if figure.metric == metric
        and all(getattr(figure.conditions, name, None) in values for name, values in wanted.items())
    ]
    return found[0] if len(found) == 1 else None


def _sums(exact: Sequence[Figure], by_conditions: ExactFigures) -> Iterator[Recomputed]:
    """Recompute the time of forward and backward pass together as their sum."""
    for figure in exact:
        forward, backward = (by_conditions.get((f"time_{of}", figure.conditions)) for of in ("forward", "backward"))
        if figure.metric == "time_forward_backward" and forward and backward:
            total = Span.of(number(forward)) + Span.of(number(backward))
            yield figure, total, Fraction(number(forward) + number(backward)), (forward, backward)


def _per_device(exact: Sequence[Figure], by_conditions: ExactFigures) -> Iterator[Recomputed]:
    """Recompute the throughput of a device from that of all devices."""
    for figure in exact:
        total = by_conditions.get(("throughput", figure.conditions))
        if figure.metric == "throughput_per_gpu" and total and devices(total):
            share = Fraction(1, devices(total))
            yield figure, Span.of(number(total)).times(share), Fraction(number(total)) * share, (total,)


def _twice(figures: Sequence[Figure]) -> Iterator[Contradiction]:
    """Figures that are printed twice under the same conditions, with different values."""
    first: dict[Hashable, Figure] = {}
    for figure in figures:
        if figure.approx or not isinstance(figure.value, Decimal):
            continue
        bare = figure.conditions.model_copy(update={"note": None})
        earlier = first.setdefault((figure.metric, figure.unit, bare), figure)
        if earlier is figure or earlier.bound is not None:
            continue
        value, known = figure.value, Span.of(number(earlier))
        if figure.bound == ">":
            wrong = known.high <= Fraction(value)
        elif figure.bound == "<":
            wrong = known.low >= Fraction(value)
        else:
            wrong = not known.overlaps(Span.of(value))
        if wrong:
            yield _found("twice", figure, Fraction(number(earlier)), (earlier,))


def _ranges(exact: Sequence[Figure], by_conditions: ExactFigures) -> Iterator[Contradiction]:
    """Means that are below their minimum or above their maximum."""
    for figure in exact:
        if not figure.metric.endswith("_avg"):
            continue
        mean, stem = Span.of(number(figure)), figure.metric.removesuffix("_avg")
        least, most = (by_conditions.get((f"{stem}_{end}", figure.conditions)) for end in ("min", "max"))
        if least and mean.high < Span.of(number(least)).low:
            yield _found("range", figure, Fraction(number(least)), (least,))
        if most and mean.low > Span.of(number(most)).high:
            yield _found("range", figure, Fraction(number(most)), (most,))


def _batches(figures: Sequence[Figure]) -> Iterator[Contradiction]:
    """Global batches that are not the sum of the devices' batches."""
    for figure in figures:
        a_device, together = figure.conditions.batch_per_gpu, figure.conditions.global_batch
        sum_of_them = (a_device or 0) * devices(figure)
        if together and sum_of_them and sum_of_them != together:
            printed, recomputed = Fraction(together), Fraction(sum_of_them)
            yield _contradiction("batch", figure.id, printed, recomputed, unit="images", against=(figure,))


def _findings(exact: Sequence[Figure], findings: Sequence[Finding]) -> Iterator[Contradiction]:
    """Ratios stated in findings that differ from the ratio of figures, if the source has exactly two matching ones."""
    for finding in findings:
        predicate = finding.predicate
        if not isinstance(predicate, Ratio):
            continue
        everywhere = predicate.for_all.stated
        above = _single(exact, everywhere | predicate.num.stated, predicate.metric)
        below = _single(exact, everywhere | predicate.den.stated, predicate.metric)
        if above is None or below is None:
            continue
        stated, made = Fraction(predicate.value), _quotient(above, below)
        if abs(made / stated - 1) > Fraction(predicate.rel_tol):
            yield _contradiction("finding", finding.id, stated, made, unit="x", against=(above, below))


def _found(check: Check, figure: Figure, recomputed: Fraction, against: Sequence[Figure]) -> Contradiction:
    return _contradiction(check, figure.id, Fraction(number(figure)), recomputed, unit=figure.unit, against=against)


def _contradiction(
    check: Check, of: str, printed: Fraction, recomputed: Fraction, *, unit: str, against: Sequence[Figure]
) -> Contradiction:
    return Contradiction(
        check=check,
        figure=of,
        printed=float(printed),
        recomputed=float(recomputed),
        unit=unit,
        against=tuple(other.id for other in against),
        difference=float(printed / recomputed - 1) if recomputed else float("inf"),
    )
