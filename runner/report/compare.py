"""A comparison as text: for a terminal, as Markdown to paste, as JSON for programs. Nothing is computed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from rich.console import Console
from rich.text import Text

from runner.analysis.comparisons.regression import Compared, Pair, Verdict
from runner.core.measurement import FEWEST_RUNS
from runner.core.units import ABSENT, INTERVAL, figure
from runner.report.table import Table, section

LEGEND: Final = (
    f"runs: of A and of B; A, B: samples of all runs ÷ their seconds; {INTERVAL}: Welch's of B/A, from {FEWEST_RUNS} of each on; p: two-sided "
    "Mann-Whitney U test, corrected by Holm for all pairs; slower, faster: the interval leaves out 1 and p < 0.05"
)
_STYLES: Final[dict[Verdict, str]] = {
    "slower": "bold red",
    "too little": "yellow",
    "no difference shown": "",
    "faster": "green",
}
_TOO_SMALL: Final = 0.0001


def _p(pair: Pair) -> str:
    if pair.test is None:
        return ABSENT
    p = pair.test.p_holm
    return f"{f'< {_TOO_SMALL}' if p < _TOO_SMALL else f'{p:.2g}'}, {pair.test.a} and {pair.test.b} {pair.test.over}"


_COLUMNS: Final[dict[str, Callable[[Pair], str]]] = {
    "trial": lambda pair: pair.trial,
    "runs": lambda pair: f"{pair.a.repeats} and {pair.b.repeats}",
    "A": lambda pair: f"{figure(pair.a.throughput)} {pair.unit}",
    "B": lambda pair: f"{figure(pair.b.throughput)} {pair.unit}",
    "B/A": lambda pair: f"{pair.ratio:.3f}",
    "95 % interval": lambda pair: f"{pair.ci95.low:.3f} to {pair.ci95.high:.3f}" if pair.ci95 else ABSENT,
    "p (Holm)": _p,
    "verdict": lambda pair: pair.verdict,
}


# Of a pair in a terminal, below its trial: what stands in 80 columns.
_FIGURES: Final[dict[str, Callable[[Pair], str]]] = {
    "runs": lambda pair: f"{pair.a.repeats}, {pair.b.repeats}",
    "A": lambda pair: figure(pair.a.throughput),
    "B": _COLUMNS["B"],
    "B/A": _COLUMNS["B/A"],
    "95 % interval": _COLUMNS["95 % interval"],
    "p": lambda pair: _p(pair).partition(",")[0],
}


def table(compared: Compared) -> Table:
    """A line for each pair."""
    return Table.laid(compared.pairs, _COLUMNS, words=("verdict",))


def notes(compared: Compared) -> Iterator[str]:
    """What the table alone would hide: where reasons may lie, what is not known, and what is not in it."""
    yield from _different(compared.pairs)
    for pair in compared.pairs:
        for name, side in (("A", pair.a), ("B", pair.b)):
            if side.doubts:
                yield f"{pair.trial}: degraded in {name}: {'; '.join(side.doubts)}"
    total = len(compared.pairs)
    if few := [pair for pair in compared.pairs if pair.ci95 is None]:
        yield (
            f"a side of fewer than {FEWEST_RUNS} runs in {len(few)} of {total}: nothing tells there how much processes differ; measure with "
            "REPEAT=4 or more"
        )
    if little := [pair for pair in compared.pairs if pair.test is None]:
        yield (
            f"too little in {len(little)} of {total}: no test over so few rates could show anything; measure with more REPEAT or ITERATIONS"
        )
    for alone in compared.unpaired:
        runs = f"{alone.trial} ({len(alone.run_ids)} run{'s' if len(alone.run_ids) > 1 else ''})"
        nearest = (
            f"the nearest differs in {', '.join(alone.differs)}: {alone.nearest}"
            if alone.nearest
            else "the other side has no run that can be compared"
        )
        yield f"only in {alone.side}: {runs}; {nearest}"
    for out in compared.left_out:
        yield f"not compared: {out.run_id} of {out.side}, {out.reason}"


def _different(pairs: Sequence[Pair]) -> Iterator[str]:
    """What else is different, once for all pairs in which it is the same."""
    different: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.differences:
            what = "; ".join(f"{each.what} {', '.join(each.a)} → {', '.join(each.b)}" for each in pair.differences)
            different.setdefault(what, []).append(pair.trial)
    for what, trials in different.items():
        every = len(trials) == len(pairs) > 1
        yield f"{'all' if every else '; '.join(trials)}: also different: {what}"


def markdown(compared: Compared) -> str:
    """A section to paste into a review; ends with a newline."""
    return section(f"{compared.b} against {compared.a}", (), table(compared), LEGEND, tuple(notes(compared)))


def as_json(compared: Compared) -> str:
    """Every figure of it; ends with a newline."""
    return compared.model_dump_json(indent=1) + "\n"


def print_compared(console: Console, compared: Compared, passed_over: Sequence[str]) -> None:
    """Print the answer, then what the pairs have in common and the figures of each below what it has for itself; then what they don't say."""
    console.print(f"A  {compared.a}\nB  {compared.b}", markup=False, soft_wrap=True)
    count = Counter(pair.verdict for pair in compared.pairs)
    console.print(
        f"\n{', '.join(f'{count[verdict]} {verdict}' for verdict in _STYLES if count[verdict])}", style="bold"
    )
    common = _common([pair.trial.split(", ") for pair in compared.pairs])
    if common:
        console.print(", ".join(common), markup=False)
    lines = [[cell(pair) for cell in _FIGURES.values()] for pair in compared.pairs]
    widths = [max(map(len, column)) for column in zip(_FIGURES, *lines, strict=True)]
    console.print(_aligned(_FIGURES, widths), style="dim", markup=False, soft_wrap=True)
    for pair, line in zip(compared.pairs, lines, strict=True):
        console.print(", ".join(pair.trial.split(", ")[len(common) :]) or "(that alone)", markup=False)
        console.print(
            Text.assemble(_aligned(line, widths), (f"  {pair.verdict}", _STYLES[pair.verdict])), soft_wrap=True
        )
    console.print(f"\n{LEGEND}", style="dim", markup=False)
    for note in (*notes(compared), *passed_over):
        console.print(f"- {note}", style="yellow", markup=False, soft_wrap=True)


def _common(trials: Sequence[Sequence[str]]) -> list[str]:
    """The parts that all begin with."""
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*trials, strict=False))]


def _aligned(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
