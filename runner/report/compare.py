"""A comparison as text: for a terminal, as Markdown to paste, as JSON for programs. Nothing is computed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from runner.analysis.comparisons.identity import Difference
from runner.analysis.comparisons.regression import Compared, LeftOut, Pair, Unpaired, Verdict
from runner.core.console import in_user_terms
from runner.core.measurement import FEWEST_RUNS
from runner.core.units import ABSENT, INTERVAL, counted, figure
from runner.report.table import Table, section

LEGEND: Final = (
    f"runs: of A and of B; A, B: samples of all runs ÷ their seconds; {INTERVAL}: Welch's, of B/A, from {FEWEST_RUNS} runs each; p: of "
    "equal rates, by the same test, corrected by Holm for all pairs; slower, faster: p < 0.05"
)
_STYLES: Final[dict[Verdict, str]] = {
    "slower": "bold red",
    "too little": "yellow",
    "no difference shown": "",
    "faster": "green",
}
_TOO_SMALL: Final = 0.0001
MOST: Final = 3  # trials or runs per side that a terminal names if they could not be compared


def _p(pair: Pair) -> str:
    if pair.test is None:
        return ABSENT
    p = pair.test.p_holm
    return f"< {_TOO_SMALL}" if p < _TOO_SMALL else f"{p:.2g}"


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


# Figures of a pair in a terminal, below its trial: those that fit in 80 columns.
_FIGURES: Final[dict[str, Callable[[Pair], str]]] = {
    "runs": lambda pair: f"{pair.a.repeats}, {pair.b.repeats}",
    "A": lambda pair: figure(pair.a.throughput),
    "B": _COLUMNS["B"],
    "B/A": _COLUMNS["B/A"],
    "95 % interval": _COLUMNS["95 % interval"],
    "p": lambda pair: _p(pair).partition(",")[0],
}


def table(compared: Compared) -> Table:
    """One row per pair."""
    return Table.from_entries(compared.pairs, _COLUMNS, words=("verdict",))


def notes(compared: Compared) -> Iterator[str]:
    """What the table would hide: possible causes, uncertainty, and what was not compared."""
    yield from _difference_notes(compared.pairs)
    for pair in compared.pairs:
        for name, doubts in _doubts(pair):
            yield f"{pair.trial}: degraded in {name}: {'; '.join(doubts)}"
    yield from _uncertainty_notes(compared.pairs)
    yield from map(_only, compared.unpaired)
    yield from map(_left_out_note, compared.left_out)


def _doubts(pair: Pair) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each degraded side of a pair, with the reasons."""
    yield from ((name, tuple(side.doubts)) for name, side in (("A", pair.a), ("B", pair.b)) if side.doubts)


def _uncertainty_notes(pairs: Sequence[Pair]) -> Iterator[str]:
    """The number of pairs whose difference may be chance, and what to do about it."""
    if few := [pair for pair in pairs if pair.test is None]:
        yield (
            f"a side of fewer than {FEWEST_RUNS} runs in {len(few)} of {len(pairs)}: how much runs differ is unknown; measure with "
            f"REPEAT={FEWEST_RUNS} or more"
        )


def _only(alone: Unpaired) -> str:
    nearest = (
        f"the nearest differs in {', '.join(alone.differs)}: {alone.nearest}"
        if alone.nearest
        else "the other side has no run that can be compared"
    )
    return f"only in {alone.side}: {alone.trial} ({counted(len(alone.run_ids))}); {nearest}"


def _left_out_note(out: LeftOut) -> str:
    return f"not compared: {out.run_id} of {out.side}, {out.reason}"


def _difference_notes(pairs: Sequence[Pair]) -> Iterator[str]:
    """Other differences between the sides, once for all pairs that share them."""
    different: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.differences:
            what = "; ".join(f"{each.what} {', '.join(each.a)} → {', '.join(each.b)}" for each in pair.differences)
            different.setdefault(what, []).append(pair.trial)
    for what, trials in different.items():
        every = len(trials) == len(pairs) > 1
        yield f"{'all' if every else '; '.join(trials)}: also different: {what}"


def _screen_notes(compared: Compared) -> Iterator[str]:
    """The notes for a terminal, without those below each pair; many trials or runs that could not be compared are only counted."""
    if len(_distinct_differences(compared.pairs)) == 1:
        yield from _difference_notes(compared.pairs)
    yield from _uncertainty_notes(compared.pairs)
    for side in ("A", "B"):
        alone = [one for one in compared.unpaired if one.side == side]
        out = [one for one in compared.left_out if one.side == side]
        yield from (
            map(_only, alone) if len(alone) <= MOST else [f"only in {side}: {len(alone)} trials, which --json lists"]
        )
        yield from (
            map(_left_out_note, out)
            if len(out) <= MOST
            else [f"not compared: {len(out)} runs of {side}, which --json lists with their reasons"]
        )


def _distinct_differences(pairs: Sequence[Pair]) -> set[tuple[Difference, ...]]:
    return {tuple(pair.differences) for pair in pairs}


def _pair_notes(pair: Pair, *, same_in_all: bool) -> Iterator[str]:
    """Notes below a pair's figures: why a side is degraded and, unless all pairs differ in the same (`same_in_all`), what else differs."""
    for name, doubts in _doubts(pair):
        more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
        yield f"degraded in {name}: {doubts[0]}{more}"
    if pair.differences and not same_in_all:
        yield f"also different: {', '.join(each.what for each in pair.differences)}"


def markdown(compared: Compared) -> str:
    """A section to paste into a review; ends with a newline."""
    return section(f"{compared.b} against {compared.a}", (), table(compared), LEGEND, tuple(notes(compared)))


def as_json(compared: Compared) -> str:
    """Every figure of the comparison; ends with a newline."""
    return compared.model_dump_json(indent=1) + "\n"


def print_compared(console: Console, compared: Compared, skipped: Sequence[str]) -> None:
    """Print the counts of verdicts, what all trials have in common, each pair's figures and notes, then the legend and the remaining notes."""
    console.print(f"A  {compared.a}\nB  {compared.b}", markup=False, soft_wrap=True)
    count = Counter(pair.verdict for pair in compared.pairs)
    console.print(
        f"\n{', '.join(f'{count[verdict]} {verdict}' for verdict in _STYLES if count[verdict])}", style="bold"
    )
    parts = zip(*(pair.trial.split(", ") for pair in compared.pairs), strict=False)
    common = [own[0] for own in takewhile(lambda own: len(set(own)) == 1, parts)]  # the common prefix of all trials
    if common:
        console.print(", ".join(common), markup=False)
    lines = [[cell(pair) for cell in _FIGURES.values()] for pair in compared.pairs]
    same_in_all = len(_distinct_differences(compared.pairs)) == 1
    widths = [max(map(len, column)) for column in zip(_FIGURES, *lines, strict=True)]
    console.print(_aligned(_FIGURES, widths), style="dim", markup=False, soft_wrap=True)
    for pair, line in zip(compared.pairs, lines, strict=True):
        if len(lines) > 1:
            console.print(", ".join(pair.trial.split(", ")[len(common) :]) or "(that alone)", markup=False)
        console.print(
            Text.assemble(_aligned(line, widths), (f"  {pair.verdict}", _STYLES[pair.verdict])), soft_wrap=True
        )
        for note in _pair_notes(pair, same_in_all=same_in_all):
            console.print(Padding(Text(note, style="yellow"), (0, 0, 0, 4), expand=False))
    console.print(f"\n{LEGEND}", style="dim", markup=False)
    for note in (*_screen_notes(compared), *skipped):
        console.print(f"- {in_user_terms(note)}", style="yellow", markup=False)


def _aligned(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
