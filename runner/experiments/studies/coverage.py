"""The coverage table of docs/studies.md: everything that each study `shows`, and in what our runs differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from runner.experiments.studies.study import NOT_STATED, Block, Shown, Study
from runner.report.table import escaped
from runner.results.published.findings import METRICS

COLUMNS = ("study", "in the source", "metrics", "run by", "state")


def rows(studies: Iterable[Study]) -> Iterator[Sequence[str]]:
    """Yield a Markdown row for each item that a source shows."""
    for study in studies:
        for shown in study.shows:
            metrics = ", ".join(name.replace("_", " ") for name in shown.metrics)
            blocks = ", ".join(f"`{name}`" for name in shown.blocks)
            yield (f"`{study.id}`", escaped(shown.what), metrics, blocks, escaped(state(study, shown)))


def state(study: Study, shown: Shown) -> str:
    """Return `covered`, `covered as data` (nothing to run), `differs in ...` or `can't: ...`, with the further differences of a stand-in framework."""
    if shown.cant:
        return f"can't: {shown.cant}"
    if not shown.blocks:
        return "covered as data"
    fields, others = (
        dict.fromkeys(
            field for name in shown.blocks for field in _differing(study, study.block(name), shown, framework)
        )
        for framework in (None, ANOTHER)
    )
    more = [field for field in others if field not in fields]
    stand_in = f"; where another framework stands in, also in {', '.join(more)}" if more else ""
    return f"differs in {', '.join(fields)}{stand_in}" if fields else f"covered{stand_in}"


ANOTHER: Final = "another framework"
"""Any framework other than the source's."""


def _differing(study: Study, block: Block, shown: Shown, framework: str | None) -> Iterator[str]:
    """Yield the fields in which a block's runs in a framework differ from the source's; a metric's method counts only if the metric is shown."""
    for model in block.models:
        for one in study.declared(block, model, framework=framework):
            metric = one.field.lower().replace(" ", "_")
            if not one.published.startswith(NOT_STATED) and (metric not in METRICS or metric in shown.metrics):
                yield one.field.replace("_", " ")
    if block.where.data == "real" and block.image_size:
        yield "data"
