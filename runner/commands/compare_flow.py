"""`dlscale compare`: reads two sets of runs, compares them, prints the result, and fails if a trial got slower than allowed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Final, Literal

from runner.analysis.comparisons.regression import Compared, compare
from runner.commands.options import runs_named
from runner.core.console import notify, open_screen
from runner.core.errors import RequestError, SlowerError
from runner.core.units import counted
from runner.report import compare as show
from runner.results.find import MATRIX, FoundRuns, read_runs, runs_at
from runner.results.find import since as split_since

Form = Literal["table", "markdown", "json"]
Side = tuple[str, FoundRuns]  # the side's name, and its runs
_DAYS_AGO: Final[Mapping[str, int]] = {"today": 0, "yesterday": 1}
_PERCENT: Final = re.compile(r"^(\d+(?:\.\d+)?)%$")


def sides(a: str, b: str) -> tuple[Side, Side]:
    """The sides before and after, each named by a run directory, a folder of runs, a glob, or any name that `find.resolve` understands.

    Raises RequestError if a side is not named, does not exist or holds no run.
    """
    if not (a.strip() and b.strip()):
        raise RequestError(
            "two sides are compared, before and after; name both, for example `dlscale compare last~1 last`"
        )
    first, second = (runs_at(*map(str, runs_named(word, example="last", unit=MATRIX))) for word in (a, b))
    return (a, first), (b, second)


def since(day: str, *, place: str, more: str) -> tuple[Side, Side]:
    """Split a folder's runs (default: `results/`), at any depth, by a day (`yesterday`, `today`, a date; UTC); earlier ones only of trials run since.

    Raises RequestError if `day` is not a day, if one side has no run, or if `more` names a second place.
    """
    if more:
        raise RequestError(f"SINCE={day} splits the runs of one place, and B={more} names another; leave B out")
    now = datetime.now(timezone.utc)
    try:
        begin = now - timedelta(days=_DAYS_AGO[day]) if day in _DAYS_AGO else datetime.fromisoformat(day)
    except ValueError as error:
        raise RequestError(f"SINCE={day} is not a day; write for example yesterday or {now:%Y-%m-%d}") from error
    found = split_since(begin.replace(hour=0, minute=0, second=0), place or None)
    names = (f"before {begin:%Y-%m-%d}", f"since {begin:%Y-%m-%d}")
    for name, runs in zip(names, found, strict=True):
        if not runs:
            raise RequestError(f"no run {name} to compare with; `dlscale ls` lists them")
    first, second = (read_runs(runs) for runs in found)
    return (names[0], first), (names[1], second)


def compare_runs(a: Side, b: Side, *, threshold: str | None, form: Form) -> None:
    """Print how the trials of B (after) compare with those of A (before), and fail if one is slower by more than a threshold such as `3%`.

    Raises:
        RequestError: a side has no record, the sides share a run or no trial, or the threshold can't be parsed.
        SlowerError: a trial is slower than the threshold allows.
    """
    percent = read_percent(threshold) if threshold is not None else None
    both = {"A": a[1], "B": b[1]}
    for name, side in both.items():
        if not side.runs:
            raise RequestError(f"{name} holds no record that can be read: {side.skipped[0]}")
    before, after = ([record for _, record in side.runs] for side in both.values())
    if shared := sorted({record.run_id for record in before} & {record.run_id for record in after}):
        raise RequestError(
            f"{counted(len(shared))} of A={a[0]} {'is' if len(shared) == 1 else 'are'} in B={b[0]} too, for example {shared[0]}; name two places that share none"
        )
    compared = compare(before, after, names=(a[0], b[0]))
    _refuse_unrelated(compared)
    skipped = [f"{name}: {sentence}" for name, side in both.items() for sentence in side.skipped]
    if form == "table":
        show.print_compared(open_screen(), compared, skipped)
    else:
        sys.stdout.write(show.as_json(compared) if form == "json" else show.markdown(compared))
        notify(skipped)
    if percent is not None:
        _fail_on_regression(compared, percent)


def read_percent(text: str) -> float:
    """Parse a share such as `3%`, in percent. Raises RequestError if it is not a share below 100 %."""
    match = _PERCENT.match(text.strip())
    if not match or float(match[1]) >= 100:  # noqa: PLR2004 - per cent
        raise RequestError(f"FAIL_ON_REGRESSION={text} is not a share below 100%; write for example 3%")
    return float(match[1])


def _refuse_unrelated(compared: Compared) -> None:
    """Refuse two sides that have no trial in common."""
    if compared.pairs:
        return
    differs = next((one.differs for one in compared.unpaired if one.differs), ())
    why = f"differ in {', '.join(differs)}" if differs else "have no trial in common"
    left_out = f" ({out[0].run_id} is {out[0].reason})" if (out := compared.left_out) and not differs else ""
    raise RequestError(f"{compared.a} and {compared.b} {why}{left_out}; name runs of one trial, `dlscale ls` lists all")


def _fail_on_regression(compared: Compared, percent: float) -> None:
    """Raise SlowerError if a trial is slower than allowed by more than chance."""
    slower = [pair for pair in compared.pairs if pair.slower_than(percent)]
    if slower:
        worst = slower[0]
        many = f"{len(slower)} of {len(compared.pairs)} trials are" if len(slower) > 1 else "1 trial is"
        raise SlowerError(
            f"{many} more than {percent:g} % slower in B={compared.b} than in A={compared.a}, most of all {worst.trial}: "
            f"{100 * (worst.ratio - 1):+.1f} %; first check what else differs between them"
        )
