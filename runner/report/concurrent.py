"""What several trainings at once are worth: the table on a terminal, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from runner.core.trial import Case
from runner.core.units import ABSENT
from runner.report.block import Block, escaped, listed

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
    lines = [
        f"### {escaped(_title(summary, cases))}",
        "",
        f"{escaped(summary.setting)}  ",
        escaped(f"{summary.machine} · {summary.image_reference} · engine {summary.engine} · {summary.date}"),
        "",
        *_block(cases).markdown(),
        "",
        LEGEND,
        *(["", *listed(_reasons(cases))] if _reasons(cases) else []),
    ]
    return "\n".join(lines) + "\n"


def to_csv(cases: Sequence[CaseFigures]) -> str:
    """One line a case and repeat."""
    lines = ["case,trainings,devices,shared,repeat,total_s,samples"]
    for case in cases:
        for repeat, seconds in enumerate(case.total_s, start=1):
            words = (case.case, case.trainings, case.devices, int(case.shared), repeat, repr(seconds), case.samples)
            lines.append(",".join(map(str, words)))
    return "\n".join(lines) + "\n"


def _title(summary: Summary, cases: Sequence[CaseFigures]) -> str:
    return f"{summary.title}, {max(case.trainings for case in cases)} trainings"


def _block(cases: Sequence[CaseFigures]) -> Block:
    sequential = next((case.median_s for case in cases if case.case == "sequential"), None)
    found: list[tuple[str, ...]] = []
    for case in cases:
        median = case.median_s
        name = IN_WORDS[case.case] + (", all on the same devices" if case.shared else "")
        spread = f" ({min(case.total_s):.4g}–{max(case.total_s):.4g})" if len(case.total_s) > 1 else ""
        found.append(
            (
                name,
                str(case.trainings),
                str(case.devices),
                f"{len(case.total_s):,}",
                f"{median:.4g}{spread}" if median else ABSENT,
                f"{case.samples / median:.4g}" if median else ABSENT,
                f"{median / sequential:.3f}" if median and sequential else ABSENT,
            )
        )
    return Block(headers=HEADERS, rows=tuple(found))


def _reasons(cases: Sequence[CaseFigures]) -> list[str]:
    return [f"{IN_WORDS[case.case]}: {reason}" for case in cases for reason in case.reasons]
