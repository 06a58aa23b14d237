"""The doctor's findings on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from runner.doctor import Finding, Level

_STYLES: dict[Level, str] = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """One line a finding, the next step under it; levels are words, so that colour is not needed to read it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        said = Text(finding.sentence)
        if finding.next_step:
            said.append(f"\n→ {finding.next_step}", style="dim")
        table.add_row(Text(finding.level, style=_STYLES[finding.level]), Text(finding.subject), said)
    return table
