"""Two sets of records → which trials got slower, and how sure that is. Pure.

A trial is told apart when its ratio's 95 % interval leaves out 1 and a rank test has p < 0.05 after Holm's correction for all pairs: the
interval, which is over runs, knows that windows of one process are alike and the test does not, the test knows how many pairs were looked at
and the interval does not. Where a side has fewer than three runs there is no interval, and nothing is told apart. Repeats are ranked where there are enough of them to show anything among so many pairs (three against three never are: the
smallest p that they can have is 0.1), else the windows of all repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from runner.analysis.compare import ranktest
from runner.analysis.compare.identity import Identity, differences, distance, identity, in_words
from runner.analysis.compare.model import SIGNIFICANT, Compared, LeftOut, Pair, RankTest, Side, Unpaired, Verdict
from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import GlobalWindows
from runner.analysis.summarize import usable_windows
from runner.core.measurement import Interval
from runner.core.record import RunRecord

Trials = Mapping[Identity, Sequence[RunRecord]]
ORDER: Final[Sequence[str]] = get_args(Verdict)


@dataclass(frozen=True, kw_only=True)
class _Held:
    """The runs of one trial in A and in B, with the windows that count."""

    trial: Identity
    a: Sequence[RunRecord]
    b: Sequence[RunRecord]
    windows_a: Sequence[GlobalWindows]
    windows_b: Sequence[GlobalWindows]


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    """What a rank test came to before it is corrected."""

    over: Literal["repeats", "windows"]
    a: int
    b: int
    u: float
    p: float


def compare(a: Sequence[RunRecord], b: Sequence[RunRecord], *, names: tuple[str, str]) -> Compared:
    """Hold every trial of B against the same one of A.

    Args:
        a: records of the one side, whatever they are of.
        b: of the other.
        names: what the sides are called.
    """
    out_a, in_a = _sorted_out("A", a)
    out_b, in_b = _sorted_out("B", b)
    held = [
        _Held(
            trial=trial,
            a=in_a[trial],
            b=in_b[trial],
            windows_a=usable_windows(in_a[trial]),
            windows_b=usable_windows(in_b[trial]),
        )
        for trial in in_a
        if trial in in_b
    ]
    ranked = [_ranked(each, among=len(held)) for each in held]
    corrected = iter(ranktest.holm([test.p for test in ranked if test]))
    pairs = [_pair(each, test, next(corrected) if test else None) for each, test in zip(held, ranked, strict=True)]
    return Compared(
        a=names[0],
        b=names[1],
        pairs=tuple(sorted(pairs, key=lambda pair: (ORDER.index(pair.verdict), pair.ratio, pair.trial))),
        unpaired=(*_alone("A", in_a, in_b), *_alone("B", in_b, in_a)),
        left_out=(*out_a, *out_b),
    )


def _sorted_out(side: Literal["A", "B"], records: Sequence[RunRecord]) -> tuple[list[LeftOut], Trials]:
    """The runs that can't be compared, each with its reason, and the others by trial."""
    out: list[LeftOut] = []
    trials: dict[Identity, list[RunRecord]] = defaultdict(list)
    for record in records:
        if reason := _unusable(record):
            out.append(LeftOut(side=side, run_id=record.run_id, reason=reason))
        else:
            trials[identity(record)].append(record)
    return out, trials


def _unusable(record: RunRecord) -> str | None:
    if record.validity.status == "invalid":
        return f"invalid: {'; '.join(record.validity.reasons)}"
    if record.profiled:
        return "a pass under a profiler, which has no rate"
    return None if usable_windows([record]) else "it has no window that counts"


def _ranked(held: _Held, *, among: int) -> _Ranked | None:
    """Rank the rates of both sides; None where no outcome of it could tell them apart among so many pairs."""
    repeats = [[run.rate for run in side] for side in (held.windows_a, held.windows_b)]
    windows = [
        [float(rate) for run in side for rate in run.samples / run.seconds] for side in (held.windows_a, held.windows_b)
    ]
    choices: tuple[tuple[Literal["repeats", "windows"], list[list[float]]], ...] = (
        ("repeats", repeats),
        ("windows", windows),
    )
    for over, (a, b) in choices:
        if ranktest.smallest_p(len(a), len(b)) * among < SIGNIFICANT:
            u, p = ranktest.mann_whitney(a, b)
            return _Ranked(over=over, a=len(a), b=len(b), u=u, p=p)
    return None


def _pair(held: _Held, ranked: _Ranked | None, p_holm: float | None) -> Pair:
    a, b = _side(held.a, held.windows_a), _side(held.b, held.windows_b)
    ratio = b.throughput / a.throughput
    ci95 = metrics.ratio_interval(held.windows_b, held.windows_a)
    told = (record.measurement.throughput for record in (*held.a, *held.b))
    return Pair(
        trial=in_words(held.trial),
        unit=next((rate.unit for rate in told if rate), "samples/s"),
        a=a,
        b=b,
        ratio=ratio,
        ci95=ci95,
        test=RankTest(**vars(ranked), p_holm=p_holm) if ranked and p_holm is not None else None,
        verdict=verdict(ci95, p_holm),
        differences=differences(held.a, held.b),
    )


def _side(records: Sequence[RunRecord], windows: Sequence[GlobalWindows]) -> Side:
    return Side(
        run_ids=tuple(record.run_id for record in records),
        throughput=metrics.pooled_rate(windows),
        repeats=len(windows),
        windows=sum(len(run.samples) for run in windows),
        doubts=tuple(dict.fromkeys(reason for record in records for reason in record.validity.reasons)),
    )


def verdict(ci95: Interval | None, p_holm: float | None) -> Verdict:
    """What is shown about a ratio: both the interval and the test have to agree that it is not 1."""
    if ci95 is None or p_holm is None:
        return "too little"
    if p_holm < SIGNIFICANT and ci95.high < 1:
        return "slower"
    return "faster" if p_holm < SIGNIFICANT and ci95.low > 1 else "no difference shown"


def _alone(side: Literal["A", "B"], own: Trials, other: Trials) -> list[Unpaired]:
    """The trials that only one side has, each with what keeps it from the nearest of the other side."""
    return [
        Unpaired(
            side=side,
            trial=in_words(trial),
            run_ids=tuple(record.run_id for record in records),
            nearest=_nearest(trial, other),
        )
        for trial, records in own.items()
        if trial not in other
    ]


def _nearest(trial: Identity, other: Trials) -> str:
    if not other:
        return "the other side has no run that can be compared"
    nearest = min(other, key=lambda found: len(distance(trial, found)))
    return f"the nearest differs in {', '.join(distance(trial, nearest)).replace('_', ' ')}: {in_words(nearest)}"
