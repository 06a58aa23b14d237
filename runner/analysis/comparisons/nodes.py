"""Figures of nodes that did the same work in the same rounds → which are slower than the others, or than a baseline. Pure.

Criterion: for each node and figure, the ratio of its rate to the expected rate, with an interval; a node is out if the whole interval lies
below 1 - MARGIN. This is a minimum-effect test, not a test for any difference (K. R. Murphy and B. Myors, "Testing the hypothesis that
treatments have negligible effects: minimum-effect tests in the general linear model", Journal of Applied Psychology 84(2), 1999): healthy
nodes differ, and with enough rounds any difference becomes significant.

Among nodes, the expected rate is the median of the other nodes in the same round, so that neither a slow node nor a common drift shifts it;
the interval is Student's t on logarithms over the rounds. Against a baseline it is Welch's on logarithms. All intervals of a diagnosis hold
jointly with 95 % (C. E. Bonferroni, "Teoria statistica delle classi e calcolo delle probabilità", 1936): each at 1 - 0.05 ÷ their number.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from runner.analysis.grading.metrics import CONFIDENCE, student_t, welch_freedom
from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.core.measurement import FEWEST_RUNS, Interval

# A node is out if it is slower than expected by more than this share.
MARGIN: Final = 0.05
_NUMBERED: Final = re.compile(r"(?P<prefix>.*?)(?P<number>\d+)", re.ASCII)


class Figure(Frozen):
    """Rates of one kind, higher is better: by node, one per round in round order."""

    name: str
    unit: str
    values: Mapping[str, tuple[float, ...]]


class Diagnosis(Frozen):
    """The measurements of nodes, as stored on file.

    Attributes:
        what: the trial, in words; only diagnoses of one trial on one kind of device are comparable.
        device: the device of all nodes, as their runs name it.
        failed: by node, why its trial has no figures.
        runs: ids of the records behind the trial's figures.
    """

    what: str
    device: str
    figures: tuple[Figure, ...]
    failed: Mapping[str, str] = {}
    runs: tuple[str, ...] = ()


class Verdict(Frozen):
    """One figure of one node: its geometric mean over the rounds, and its ratio to the expected value."""

    node: str
    figure: str
    unit: str
    value: float
    expected: float
    ratio: float
    interval: Interval
    baseline: bool

    @property
    def is_slow(self) -> bool:
        """Whether the node is significantly slower than the margin allows."""
        return self.interval.high < 1 - MARGIN


def judge(found: Diagnosis, baseline: Diagnosis | None = None) -> tuple[Verdict, ...]:
    """Compare every node with the others, slowest first within a figure, then with a baseline, if any, in the order of names.

    Raises RequestError: too few rounds for an interval, here or in the baseline, or a baseline of another trial or device.
    """
    if baseline:
        refuse_other(baseline, what=found.what, device=found.device)
    expected = {figure.name: figure for figure in baseline.figures} if baseline else {}
    several = [figure for figure in found.figures if len(figure.values) > 1]
    known = [figure for figure in found.figures if figure.name in expected]
    count = sum(len(figure.values) for figure in (*several, *known))
    for figure in (*several, *known):
        if rounds := [len(own) for own in figure.values.values() if len(own) < FEWEST_RUNS]:
            raise RequestError(
                f"{figure.name} was measured in {min(rounds)} rounds, and an interval needs {FEWEST_RUNS}; add REPEAT=5"
            )
    confidence = 1 - (1 - CONFIDENCE) / max(1, count)
    verdicts = [one for figure in several for one in _among(figure, confidence)]
    verdicts += [one for figure in known for one in _against(figure, expected[figure.name], confidence)]
    return tuple(verdicts)


def refuse_other(baseline: Diagnosis, *, what: str, device: str) -> None:
    """Raise RequestError, naming both, if the baseline is of another trial or device."""
    if (baseline.what, baseline.device) != (what, device):
        raise RequestError(
            f"the baseline is of {baseline.what} on {baseline.device}, but the nodes run {what} on {device}; pass a baseline of the same"
        )


def _among(figure: Figure, confidence: float) -> Iterator[Verdict]:
    """Compare each node with the median of the others, round by round."""
    logs = {node: [math.log(value) for value in values] for node, values in figure.values.items()}
    found = []
    for node, own in logs.items():
        others = [
            statistics.median(round_) for round_ in zip(*(logs[other] for other in logs if other != node), strict=True)
        ]
        deltas = [mine - theirs for mine, theirs in zip(own, others, strict=True)]
        width = student_t(len(deltas) - 1, confidence) * math.sqrt(statistics.variance(deltas) / len(deltas))
        found.append(_verdict(node, figure, own, statistics.fmean(deltas), width, baseline=False))
    return iter(sorted(found, key=lambda one: one.ratio))


def _against(figure: Figure, expected: Figure, confidence: float) -> Iterator[Verdict]:
    """Compare each node with all runs of a baseline."""
    theirs = [math.log(value) for values in expected.values.values() for value in values]
    base_variance = statistics.variance(theirs) / len(theirs) if len(theirs) >= FEWEST_RUNS else None
    if base_variance is None:
        raise RequestError(
            f"the baseline has {len(theirs)} values of {figure.name}, and an interval needs {FEWEST_RUNS}; measure the baseline again"
        )
    for node, values in sorted(figure.values.items()):
        own = [math.log(value) for value in values]
        node_variance = statistics.variance(own) / len(own)
        freedom = welch_freedom((node_variance, len(own) - 1), (base_variance, len(theirs) - 1))
        width = student_t(freedom, confidence) * math.sqrt(node_variance + base_variance)
        yield _verdict(node, figure, own, statistics.fmean(own) - statistics.fmean(theirs), width, baseline=True)


def _verdict(node: str, figure: Figure, own: Sequence[float], delta: float, width: float, *, baseline: bool) -> Verdict:
    value = math.exp(statistics.fmean(own))
    return Verdict(
        node=node,
        figure=figure.name,
        unit=figure.unit,
        value=value,
        expected=value / math.exp(delta),
        ratio=math.exp(delta),
        interval=Interval(low=math.exp(delta - width), high=math.exp(delta + width)),
        baseline=baseline,
    )


def pooled(found: Iterable[Diagnosis]) -> Diagnosis:
    """Merge diagnoses of one trial on one kind of device into a baseline. Raises RequestError if there are none, or of several kinds."""
    all_ = tuple(found)
    if not all_:
        raise RequestError("there is no diagnosis to make a baseline from; run `dlscale diagnose` first")
    kinds = {(one.what, one.device) for one in all_}
    if len(kinds) > 1:
        described = "; ".join(f"{what} on {device}" for what, device in sorted(kinds))
        raise RequestError(
            f"a baseline must be of one trial on one kind of device, but these diagnoses are of several ({described}); name those of one"
        )
    figures: dict[str, Figure] = {}
    for one in all_:
        for figure in one.figures:
            before = figures.get(figure.name)
            values = {
                node: (*(before.values.get(node, ()) if before else ()), *own) for node, own in figure.values.items()
            }
            figures[figure.name] = figure.model_copy(update={"values": {**(before.values if before else {}), **values}})
    first = all_[0]
    return Diagnosis(
        what=first.what,
        device=first.device,
        figures=tuple(figures.values()),
        runs=tuple(run for one in all_ for run in one.runs),
    )


def hostlist(names: Iterable[str]) -> str:
    """Join host names in Slurm's notation, `n[3,7-9],login` (slurm.schedmd.com/sbatch.html, --exclude); zero padding is kept."""
    by_prefix: dict[tuple[str, int], list[int]] = {}
    found: list[str] = []
    for name in sorted(set(names)):
        if match := _NUMBERED.fullmatch(name):
            by_prefix.setdefault((match["prefix"], len(match["number"])), []).append(int(match["number"]))
        else:
            found.append(name)
    for (prefix, width), numbers in by_prefix.items():
        runs = [[n for _, n in run] for _, run in groupby(enumerate(sorted(numbers)), key=lambda one: one[1] - one[0])]
        spans = ["-".join(f"{number:0{width}d}" for number in dict.fromkeys((run[0], run[-1]))) for run in runs]
        found.append(f"{prefix}{spans[0]}" if len(numbers) == 1 else f"{prefix}[{','.join(spans)}]")
    return ",".join(sorted(found))
