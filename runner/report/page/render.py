"""The page as one HTML file: markup from a template, style and scripts inlined, values as JSON, Plotly compressed until the first figure is seen.

The page may not load anything: its own content security policy (`default-src 'none'`) forbids it, whatever a record contains.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Final

from runner.report import picture
from runner.report.page.model import Block, Figure, Page, Series, prose
from runner.report.page.runs import COLUMNS, FILTERED, SHOWN_FIRST

if TYPE_CHECKING:
    from jinja2 import Environment

DIGITS: Final = 6  # significant digits of a value on the page; its CSV has all
SCRIPTS: Final = ("data.js", "table.js", "figure.js", "panel.js", "page.js")


def html(page: Page, *, figures_folder: str, pictures: bool = True) -> str:
    """Render the page; `figures_folder` is the folder of the figures' files, relative to the page; with `pictures` it has PNGs too."""
    template = _environment().get_template("page.html.j2")
    return template.render(
        page=page,
        style=_asset("page.css"),
        script="\n".join(_asset(name) for name in SCRIPTS),
        values=_script_safe(
            json.dumps(
                _values(page, figures_folder=figures_folder, pictures=pictures),
                separators=(",", ":"),
                ensure_ascii=False,
            )
        ),
        plotly=plotly(),
        opened=_initially_open(page),
    )


def plotly() -> str:
    """Plotly as base64 of gzip: a third of its size, and the browser parses nothing before a figure is seen."""
    code = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, compresslevel=9, mtime=0)).decode()


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (commands load what they need)

    # Text of a record is never markup: everything is escaped, unless the template says otherwise.
    return Environment(
        loader=PackageLoader("runner.report.page", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> str:
    return (resources.files("runner.report.page") / "assets" / name).read_text(encoding="utf-8")


def _script_safe(text: str) -> str:
    """Escape JSON so that no string in it can close its script element (https://html.spec.whatwg.org/#restrictions-for-contents-of-script-elements)."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _initially_open(page: Page) -> frozenset[str]:
    """The blocks that are open initially: in each chapter the first one with a figure, of the latest run's hardware."""
    firsts = (
        next((block for block in section.blocks if block.figures and not block.elsewhere), None)
        for section in page.sections
    )
    return frozenset(block.anchor for block in firsts if block)


def _values(page: Page, *, figures_folder: str, pictures: bool) -> dict[str, object]:
    strings: dict[str, int] = {}

    def pool(text: str) -> int:
        """The index of a string, stored once: a machine's name occurs in every row of the table of runs."""
        return strings.setdefault(text, len(strings))

    places = {run.run_id: number for number, run in enumerate(page.runs)}
    return {
        "colours": picture.SERIES,
        "beside": figures_folder,
        "pictures": pictures,
        "runs": _runs(page, pool),
        "blocks": {block.anchor: _block(block, places) for block in page.blocks},
        "strings": list(strings),
    }


def _runs(page: Page, pool: Callable[[str], int]) -> dict[str, object]:
    columns = list(zip(*(run.cells for run in page.runs), strict=True)) or [()] * len(COLUMNS)
    panels = [
        (
            *(run.record, run.folder),
            [[pool(fact.name), pool(fact.value), int(fact.command)] for fact in run.facts],
            [pool(reason) for reason in run.reasons],
        )
        for run in page.runs
    ]
    return {
        "columns": COLUMNS,
        "shown": SHOWN_FIRST,
        "filtered": [COLUMNS.index(name) for name in FILTERED],
        "cells": [[pool(cell) for cell in column] for column in columns],
        "panels": panels,
    }


def _block(block: Block, places: dict[str, int]) -> dict[str, object]:
    return {
        "lines": block.lines,
        "figures": [_figure(figure, places) for figure in block.figures],
        "tables": [table.model_dump(exclude={"words"}) for table in block.tables],
        "notes": block.notes,
        "empty": "" if block.figures else block.empty,
        "runs": _indices(block.runs, places),
    }


def _figure(figure: Figure, places: dict[str, int]) -> dict[str, object]:
    plain = figure.model_dump(exclude={"series"}, exclude_defaults=True)
    return {**plain, "summary": prose(figure), "series": [_series(series, places) for series in figure.series]}


def _series(series: Series, places: dict[str, int]) -> dict[str, object]:
    found: dict[str, object] = {"name": series.name, "kind": series.kind}
    for name in ("x", "y", "low", "high"):
        if column := getattr(series, name):
            found[name] = [_rounded(value) for value in column]
    if any(series.degraded):
        found["degraded"] = [int(one) for one in series.degraded]
    if len(set(series.runs)) == 1:  # a curve over time comes from one run
        found |= {"runs": _indices(series.runs[0], places), "alike": True}
    elif series.runs:
        found["runs"] = [_indices(runs, places) for runs in series.runs]
    return found


def _indices(runs: tuple[str, ...], places: dict[str, int]) -> list[int]:
    """Indices into the table of runs; runs that are not on the page are dropped."""
    return [places[run] for run in runs if run in places]


def _rounded(value: float | str | None) -> float | str | None:
    if not isinstance(value, float):
        return value
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short
