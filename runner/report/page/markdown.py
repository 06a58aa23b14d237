"""The page as Markdown, to be committed with the records: the same blocks in the same words, without figures, which need a program to draw them.

It does not say when it was drawn, so that the same records always give the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from runner.core.units import ABSENT
from runner.report.page.model import Block, Page, Section
from runner.report.table import Table, escaped, line, listed

MOST_BLOCKS: Final = 12
"""A chapter with more blocks has one line per block, with a link to the block's own report."""
MOST_ROWS: Final = 20  # per block: a table that does not fit is left out, and its number of rows given
MOST_OVERVIEW_ROWS: Final = 80
MOST_RUNS: Final = 12  # of more runs only the number and the folders are given
_FIGURE: Final = re.compile(r"[<>≈≤≥+-]?\d[\d,.]*(?: ± [\d,.]+)?(?: \S+)?")


def markdown(page: Page) -> str:
    """Render the page; ends with a newline."""
    folders = {run.run_id: run.folder for run in page.runs}
    lines = [
        "<!-- written by `dlscale report`: do not edit -->",
        f"# {escaped(page.title)}",
        "",
        f"{escaped(page.made)}. The same with figures, and with a table of all runs, is `report.html`, which the same command draws.",
        "",
        line([words for words, _ in page.counts]),
        line(["--:"] * len(page.counts)),
        line([f"{number:,}" for _, number in page.counts]),
        "",
    ]
    if page.latest:
        lines += [f"## Latest run: {escaped(page.latest.title)}", "", escaped(page.latest.lead), ""]
        lines += [*_body(page.latest, folders), "## On file", ""]
    lines += _body(page.overview, folders, most_rows=MOST_OVERVIEW_ROWS)
    for section in page.sections:
        lines += _chapter(section, folders)
    return "\n".join(lines).rstrip("\n") + "\n"


def _chapter(section: Section, folders: Mapping[str, str]) -> Iterator[str]:
    """One line per block, followed by the blocks unless there are more than `MOST_BLOCKS`."""
    yield from (f"## {escaped(section.title)}", "", escaped(section.about), "")
    if len(section.blocks) > MOST_BLOCKS:
        yield from (f"{len(section.blocks):,} of them, each in a report of its own:", "")
        for block in section.blocks:
            plots = [_file(link, block.stem) for link in block.files if link.endswith(".png")]
            yield " · ".join((_entry(block, _own_report(block, folders)), *plots))
        yield ""
        return
    yield from (*(_entry(block, f"#{block.anchor}") for block in section.blocks), "")
    for block in section.blocks:
        yield from (f'### <a id="{block.anchor}"></a>{escaped(block.title)}', "", escaped(block.lead), "")
        yield from _body(block, folders)


def _entry(block: Block, target: str) -> str:
    """A block's title, result and setting, as a list entry."""
    words = "; ".join(word for word in (block.lead, *block.lines[:1]) if word)
    return f"- {_link(target, block.title) if target else escaped(block.title)}: {escaped(words)}"


def _own_report(block: Block, folders: Mapping[str, str]) -> str:
    """Link to a block's own report: its Markdown file or, if there is none, its first run."""
    drawn = (link for link in block.files if unquote(PurePosixPath(link).name) == f"{block.stem}.md")
    ran = (folders[run] for run in block.runs if run in folders)
    return next(chain(drawn, ran), "")


def _body(block: Block, folders: Mapping[str, str], *, most_rows: int = MOST_ROWS) -> Iterator[str]:
    """Everything below a block's title, each part followed by an empty line."""
    if block.lines:
        yield from ("  \n".join(map(escaped, block.lines)), "")  # two spaces: a line break
    left, omitted = most_rows, []
    for table in block.tables:
        if len(table.rows) > left:
            omitted.append(f"{table.title} ({len(table.rows):,} rows)")
            continue
        left -= len(table.rows)
        yield from (*_table(table), "")
    if omitted:
        yield from (f"Left out here: {escaped(', '.join(omitted))}", "")
    if block.notes:
        yield from (*listed(block.notes), "")
    if block.files:
        yield from (f"Files: {', '.join(_file(link, block.stem) for link in block.files)}", "")
    known = [run for run in block.runs if run in folders]
    if len(known) > MOST_RUNS:
        above = dict.fromkeys(str(PurePosixPath(folders[run]).parent) for run in known)
        yield from (f"{len(known):,} runs in {', '.join(_link(f'{place}/', unquote(place)) for place in above)}", "")
    elif known:
        yield from (f"Runs: {', '.join(_link(folders[run], run) for run in known)}", "")


def _table(table: Table) -> Iterator[str]:
    _, *others = zip(*table.rows, strict=True)
    yield from (f"**{escaped(table.title)}**", "")
    yield line(table.columns)
    yield line([":--", *("--:" if _are_figures(column) else ":--" for column in others)])
    yield from map(line, table.rows)
    if table.legend:
        yield from ("", escaped(table.legend))


def _are_figures(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell not in ("", ABSENT)]
    return bool(known) and all(_FIGURE.fullmatch(cell) for cell in known)


def _file(link: str, stem: str) -> str:
    """A link to a report, labelled by its file name without the block's stem: `power.png`, `csv`."""
    return _link(link, unquote(PurePosixPath(link).name).removeprefix(stem).lstrip("-."))


def _link(target: str, words: str) -> str:
    return f"[{escaped(words)}]({target})"
