"""The page as Markdown, for people who read it where the records are kept: the same blocks in the same words, without figures that need a program.

It says nothing of when it was drawn, so that the same records always give the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from runner.report.block import ABSENT, escaped, line

if TYPE_CHECKING:
    from runner.report.page.model import Block, Page, Section, Table

MOST_BLOCKS: Final = 12
"""Of a chapter with more there is a line each, which leads to the report that the block has of its own."""
MOST_ROWS: Final = 20
"""Of a block: a table that does not fit is left out, with the number of its rows."""
MOST_OVERVIEW_ROWS: Final = 80
MOST_RUNS: Final = 12
"""Of more runs their number is given, and the folders that they are in."""
# What Markdown or HTML would take for markup; underscores within a word are none (https://spec.commonmark.org/0.31.2/#left-flanking-delimiter-run).
_MARKUP: Final = re.compile(r"[\\`*<\[\]~&]|(?<!\w)_|_(?!\w)|^\s*(?:[#>+-]|\d+[.)])(?=\s)")
_FIGURE: Final = re.compile(r"[<>≈≤≥+-]?\d[\d,.]*(?: ± [\d,.]+)?(?: \S+)?")


def markdown(page: Page) -> str:
    """Write the page; ends with a newline."""
    folders = {run.run_id: run.folder for run in page.runs}
    lines = [
        "<!-- written by `dlscale report`: do not edit -->",
        f"# {_plain(page.title)}",
        "",
        f"{_plain(page.made)}. The same with figures, and with a table of all {len(page.runs):,} runs, is `report.html`, which the same command draws.",
        "",
        line([count.words for count in page.counts]),
        line(["--:"] * len(page.counts)),
        line([f"{count.number:,}" for count in page.counts]),
        "",
        *_body(page.overview, folders, most_rows=MOST_OVERVIEW_ROWS),
    ]
    for section in page.sections:
        lines += _chapter(section, folders)
    return "\n".join(lines).rstrip("\n") + "\n"


def _chapter(section: Section, folders: Mapping[str, str]) -> Iterator[str]:
    """A line a block, and below these the blocks."""
    yield from (f"## {_plain(section.title)}", "", _plain(section.about), "")
    if len(section.blocks) > MOST_BLOCKS:
        yield from (f"{len(section.blocks):,} of them, each in a report of its own:", "")
        for block in section.blocks:
            plots = [_file(link, block.stem) for link in block.files if link.endswith(".png")]
            yield " · ".join((_entry(block, _own_report(block, folders)), *plots))
        yield ""
        return
    yield from (*(_entry(block, f"#{block.anchor}") for block in section.blocks), "")
    for block in section.blocks:
        yield from (f'### <a id="{block.anchor}"></a>{_plain(block.title)}', "", _plain(block.lead), "")
        yield from _body(block, folders)


def _entry(block: Block, target: str) -> str:
    """What a block is, what came of it, and of which setting."""
    words = "; ".join(word for word in (block.lead, *block.lines[:1]) if word)
    return f"- {_link(target, block.title) if target else _plain(block.title)}: {_plain(words)}"


def _own_report(block: Block, folders: Mapping[str, str]) -> str:
    """Where a block can be read by itself: its tables; its first run where nobody drew any."""
    drawn = (link for link in block.files if unquote(PurePosixPath(link).name) == f"{block.stem}.md")
    ran = (folders[run] for run in block.runs if run in folders)
    return next(chain(drawn, ran), "")


def _body(block: Block, folders: Mapping[str, str], *, most_rows: int = MOST_ROWS) -> Iterator[str]:
    """Everything below the title of a block, each part with an empty line behind it."""
    if block.lines:
        yield from ("  \n".join(map(_plain, block.lines)), "")  # two spaces: a line break
    left, omitted = most_rows, []
    for table in block.tables:
        if len(table.rows) > left:
            omitted.append(f"{table.title} ({len(table.rows):,} rows)")
            continue
        left -= len(table.rows)
        yield from (*_table(table), "")
    if omitted:
        yield from (f"Left out here: {_plain(', '.join(omitted))}", "")
    if block.notes:
        yield from (*(f"- {_plain(note)}" for note in block.notes), "")
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
    yield from (f"**{_plain(table.title)}**", "")
    yield line([_marked(name) for name in table.columns])
    yield line([":--", *("--:" if _are_figures(column) else ":--" for column in others)])
    yield from (line([_marked(cell) for cell in row]) for row in table.rows)
    if table.legend:
        yield from ("", _plain(table.legend))


def _are_figures(cells: Sequence[str]) -> bool:
    told = [cell for cell in cells if cell not in ("", ABSENT)]
    return bool(told) and all(_FIGURE.fullmatch(cell) for cell in told)


def _file(link: str, stem: str) -> str:
    """A report by what its name has beside the block's: `power.png`, `csv`."""
    return _link(link, unquote(PurePosixPath(link).name).removeprefix(stem).lstrip("-."))


def _link(target: str, words: str) -> str:
    return f"[{_plain(words)}]({target})"


def _marked(text: str) -> str:
    """A text in which nothing is markup; `line` does the rest for a cell."""
    return _MARKUP.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:-1]}\\{word[-1]}"


def _plain(text: str) -> str:
    """The same outside of a table."""
    return escaped(_marked(text))
