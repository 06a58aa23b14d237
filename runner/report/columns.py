"""The figures of a row that are declared here alone: each is a column of the scaling table, of its Markdown and of its CSV.

What a figure is made from are the records of the row's usable runs (`Row.records`), or what the row has already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from runner.analysis.summarize import Row, Summary


@dataclass(frozen=True)
class Column:
    """A figure of a row: `header` and `name` (of the CSV) each with the unit, `of` None where a row has none.

    A table shows it where it is `known`, or where that is left out, where a row has it.
    """

    header: str
    name: str
    of: Callable[[Row], float | None]
    known: Callable[[Summary], bool] | None = None

    def shown(self, summary: Summary) -> bool:
        """Whether a table has the column."""
        if self.known:
            return self.known(summary)
        return any(self.of(row) is not None for row in summary.rows)


COLUMNS: Final[tuple[Column, ...]] = (
    Column("MFU (%)", "mfu_percent", lambda row: row.mfu_percent, known=lambda summary: summary.peak is not None),
)
