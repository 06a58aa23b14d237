"""What several trainings at once are worth: the table on a terminal, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from runner.core.trial import Case
from runner.core.units import ABSENT
from runner.report.block import Block, csv_text, section

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runner.analysis.comparisons.concurrency import CaseFigures
    from runner.analysis.summary import Summary

HEADERS: Final = ("case", "trainings", "devices", "repeats", "time (s)", "samples/s", "ratio")
IN_WORDS: Final[Mapping[Case, str]] = {
    "one": "one alone",
    "sequential": "one after the other",
    "together": "at once",
}
LEGEND: Final = (
    "devices: of each training; time: of all of them, measured windows alone, the median of the repeats and from the smallest to the largest; "
    "at once: from the first one's first window to the last one's end; ratio: to the time of one after the other"
)


def concurrent_table(summary: Summary, cases: Sequence[CaseFigures]) -> RenderableType:
    """Lay the cases out under what ran where.

    Args:
        summary: of the training alone: its title, setting and machine.
        cases: in the order of `concurrency.CASES`.
    """
    return Group(
        Text(_title(summary, cases), style="bold"),
        Text(summary.setting),
        Padding(_block(cases).table(), (1, 0)),
        Text(LEGEND, style="dim"),
        *(Text(reason, style="yellow") for reason in _reasons(cases)),
    )


def markdown(summary: Summary, cases: Sequence[CaseFigures]) -> str:
    """A section; ends with a newline."""
    ran_on = f"{summary.machine} · {summary.image_reference} · engine {summary.engine} · {summary.date}"
    return section(
        _title(summary, cases), (summary.setting, ran_on), (_block(cases),), legend=LEGEND, notes=_reasons(cases)
    )


def to_csv(cases: Sequence[CaseFigures]) -> str:
    """One line a case and repeat."""
    rows = [
        (case.case, case.trainings, case.devices, int(case.shared), repeat, seconds, case.samples)
        for case in cases
        for repeat, seconds in enumerate(case.total_s, start=1)
    ]
    columns = ("case", "trainings", "devices", "shared", "repeat", "total_s", "samples")
    return csv_text([dict(zip(columns, row, strict=True)) for row in rows], columns=columns)


def _title(summary: Summary, cases: Sequence[CaseFigures]) -> str:
    return f"{summary.title}, {max(case.trainings for case in cases)} trainings"


def _block(cases: Sequence[CaseFigures]) -> Block:
    sequential = next((case.median_s for case in cases if case.case == "sequential"), None)

    def time(case: CaseFigures) -> str:
        if not case.median_s:
            return ABSENT
        spread = f" ({min(case.total_s):.4g}–{max(case.total_s):.4g})" if len(case.total_s) > 1 else ""
        return f"{case.median_s:.4g}{spread}"

    return Block(
        headers=HEADERS,
        rows=tuple(
            (
                IN_WORDS[case.case] + (", all on the same devices" if case.shared else ""),
                str(case.trainings),
                str(case.devices),
                f"{len(case.total_s):,}",
                time(case),
                f"{case.samples / case.median_s:.4g}" if case.median_s else ABSENT,
                f"{case.median_s / sequential:.3f}" if case.median_s and sequential else ABSENT,
            )
            for case in cases
        ),
    )


def _reasons(cases: Sequence[CaseFigures]) -> list[str]:
    return [f"{IN_WORDS[case.case]}: {reason}" for case in cases for reason in case.reasons]
