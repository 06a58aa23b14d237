"""Two sets of records → which trials got slower, and how certain that is. Pure.

A trial differs if Welch's test on the logarithms of its runs' rates has p < 0.05 after Holm's correction for all pairs. Runs count, each a
process started anew; their windows do not, since those of one process are alike: a test that ranked them found a difference between equal
sides in up to half of all families of twenty pairs.

S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2), 1979.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from runner.analysis.comparisons.identity import Difference, Identity, differences, distance, identity, in_words
from runner.analysis.grading import metrics
from runner.analysis.summarize import usable_windows
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord

Verdict = Literal["slower", "too little", "no difference shown", "faster"]
"""In display order; `too little`: not enough was measured to tell."""

SIGNIFICANT: Final = 0.05
"""Family-wise significance level: the chance of any false difference among all pairs."""


class Side(Frozen):
    """All runs of one trial in A, or in B: samples of all repeats ÷ their seconds, steady windows only; and why some are degraded."""

    run_ids: tuple[str, ...]
    throughput: float
    repeats: int
    windows: int
    doubts: tuple[str, ...] = ()


class WelchTest(Frozen):
    """Two-sided p of equal rates over runs; `p_holm` is corrected for the number of tested pairs."""

    p: float
    p_holm: float


class Pair(Frozen):
    """One trial that ran in A and in B; the interval is None if a side has fewer than three runs."""

    trial: str
    unit: str
    a: Side
    b: Side
    ratio: float  # B ÷ A: below 1, B is slower
    ci95: Interval | None
    test: WelchTest | None  # None if a side has fewer than three runs
    verdict: Verdict
    differences: tuple[Difference, ...]  # possible causes

    def slower_than(self, percent: float) -> bool:
        """Whether B is significantly slower than A, and the whole interval lies beyond the threshold."""
        return self.verdict == "slower" and self.ci95 is not None and self.ci95.high < 1 - percent / 100


class Unpaired(Frozen):
    """A trial of one side only, the nearest trial of the other side and their differences; None if the other side has no trial."""

    side: Literal["A", "B"]
    trial: str
    run_ids: tuple[str, ...]
    nearest: str | None
    differs: tuple[str, ...]


class LeftOut(Frozen):
    """A run excluded from all pairs, whatever its trial."""

    side: Literal["A", "B"]
    run_id: str
    reason: str


class Compared(Frozen):
    """A against B, which are names of places; pairs are in order of verdict, slowest first."""

    a: str
    b: str
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    left_out: tuple[LeftOut, ...]


Trials = Mapping[Identity, Sequence[RunRecord]]
ORDER: Final[Sequence[str]] = get_args(Verdict)


def compare(a: Sequence[RunRecord], b: Sequence[RunRecord], *, names: tuple[str, str]) -> Compared:
    """Compare every trial of B with the same trial of A; `names` label the sides."""
    left_out: list[LeftOut] = []
    in_a, in_b = (_usable("A", a, left_out), _usable("B", b, left_out))
    both = [trial for trial in in_a if trial in in_b]
    ps = [metrics.equality_p(usable_windows(in_b[trial]), usable_windows(in_a[trial])) for trial in both]
    corrected = iter(holm([p for p in ps if p is not None]))
    tests = [None if p is None else WelchTest(p=p, p_holm=next(corrected)) for p in ps]
    pairs = [_pair(trial, in_a[trial], in_b[trial], test) for trial, test in zip(both, tests, strict=True)]
    return Compared(
        a=names[0],
        b=names[1],
        pairs=tuple(sorted(pairs, key=lambda pair: (ORDER.index(pair.verdict), pair.ratio, pair.trial))),
        unpaired=(*_unpaired("A", in_a, in_b), *_unpaired("B", in_b, in_a)),
        left_out=tuple(left_out),
    )


def _usable(side: Literal["A", "B"], records: Sequence[RunRecord], left_out: list[LeftOut]) -> Trials:
    """Group the comparable runs by trial; append the others to `left_out`, each with its reason."""
    trials: dict[Identity, list[RunRecord]] = {}
    for record in records:
        if reason := _unusable(record):
            left_out.append(LeftOut(side=side, run_id=record.run_id, reason=reason))
        else:
            trials.setdefault(identity(record), []).append(record)
    return trials


def _unusable(record: RunRecord) -> str | None:
    if record.validity.status == "invalid":
        return f"invalid: {'; '.join(record.validity.reasons)}"
    if record.profiled:
        return "a pass under a profiler, which has no rate"
    return None if usable_windows([record]) else "it has no window that counts"


def _pair(trial: Identity, a: Sequence[RunRecord], b: Sequence[RunRecord], test: WelchTest | None) -> Pair:
    of_a, of_b = _side(a), _side(b)
    ci95 = metrics.ratio_interval(usable_windows(b), usable_windows(a))
    ratio = of_b.throughput / of_a.throughput
    throughputs = (record.measurement.throughput for record in (*a, *b))
    return Pair(
        trial=in_words(trial),
        unit=next((rate.unit for rate in throughputs if rate), "samples/s"),
        a=of_a,
        b=of_b,
        ratio=ratio,
        ci95=ci95,
        test=test,
        verdict=verdict(ratio, test.p_holm if test else None),
        differences=differences(a, b, counting=True),
    )


def _side(records: Sequence[RunRecord]) -> Side:
    windows = usable_windows(records)
    return Side(
        run_ids=tuple(record.run_id for record in records),
        throughput=metrics.pooled_rate(windows),
        repeats=len(windows),
        windows=sum(len(run.samples) for run in windows),
        doubts=tuple(dict.fromkeys(reason for record in records for reason in record.validity.reasons)),
    )


def verdict(ratio: float, p_holm: float | None) -> Verdict:
    """Judge B ÷ A by the p of equal rates."""
    if p_holm is None:
        return "too little"
    if p_holm >= SIGNIFICANT:
        return "no difference shown"
    return "slower" if ratio < 1 else "faster"


def _unpaired(side: Literal["A", "B"], own: Trials, other: Trials) -> list[Unpaired]:
    """The trials of one side only, each with its differences from the nearest trial of the other side."""
    found = []
    for trial in (one for one in own if one not in other):
        nearest = min(other, key=lambda one: len(distance(trial, one)), default=None)
        differs = tuple(name.replace("_", " ") for name in distance(trial, nearest)) if nearest else ()
        words = in_words(nearest) if nearest else None
        run_ids = tuple(record.run_id for record in own[trial])
        found.append(Unpaired(side=side, trial=in_words(trial), run_ids=run_ids, nearest=words, differs=differs))
    return found


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Each p corrected for all of them together, in their order: at 0.05, at most one family in twenty has a false positive."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected = [0.0] * len(ps)
    so_far = 0.0
    for place, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = so_far
    return tuple(corrected)
