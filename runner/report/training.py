"""What every report on one training in several settings has: its head, its notes, and a section of Markdown around its table."""

from __future__ import annotations

from runner.analysis.comparisons.alike import TrainingReport
from runner.report.block import Block, section


def training_section(found: TrainingReport, what: str, block: Block, *, legend: str) -> str:
    """It in Markdown, with the word for what is told apart in the title."""
    return section(f"{found.title}: {what}", (found.setting, found.ground), (block,), legend=legend, notes=found.notes)
