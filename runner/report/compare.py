"""A comparison as text: for a terminal, as Markdown to paste, as JSON for programs. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from runner.analysis.comparisons.regression import Compared, Pair, Verdict
from runner.core.measurement import FEWEST_RUNS
from runner.core.units import ABSENT, INTERVAL, figure
from runner.report.block import Block, plain_table, section

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


def table(compared: Compared) -> Block:
    """A line for each pair."""
    return Block.laid(compared.pairs, _COLUMNS, words=("verdict",))


def notes(compared: Compared) -> Iterator[str]:
    """What the table alone would hide: where reasons may lie, what is not known, and what is not in it."""
    for pair in compared.pairs:
        if pair.differences:
            what = "; ".join(f"{each.what} {', '.join(each.a)} → {', '.join(each.b)}" for each in pair.differences)
            yield f"{pair.trial}: also different: {what}"
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
        yield f"only in {alone.side}: {alone.trial} ({len(alone.run_ids)} run{'s' if len(alone.run_ids) > 1 else ''}); {alone.nearest}"
    for out in compared.left_out:
        yield f"not compared: {out.run_id} of {out.side}, {out.reason}"


def markdown(compared: Compared) -> str:
    """A section to paste into a review; ends with a newline."""
    return section(f"{compared.b} against {compared.a}", (), table(compared), LEGEND, tuple(notes(compared)))


def as_json(compared: Compared) -> str:
    """Every figure of it; ends with a newline."""
    return compared.model_dump_json(indent=1) + "\n"


def print_compared(console: Console, compared: Compared, passed_over: Sequence[str]) -> None:
    """Print the table, and under it what it does not say."""
    console.print(f"A  {compared.a}\nB  {compared.b}", markup=False, soft_wrap=True)
    shown = plain_table()
    for header in _COLUMNS:
        shown.add_column(header, justify="left" if header in ("trial", "verdict") else "right")
    for pair, (*plain, verdict) in zip(compared.pairs, table(compared).rows, strict=True):
        shown.add_row(*plain, Text(verdict, style=_STYLES[pair.verdict]))
    console.print(Padding(shown, (1, 0)))
    console.print(LEGEND, style="dim", markup=False, soft_wrap=True)
    for note in (*notes(compared), *passed_over):
        console.print(f"- {note}", style="yellow", markup=False, soft_wrap=True)
