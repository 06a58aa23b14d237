"""`dlscale compare`: words in, a comparison out."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.commands.options import Text, complete_run, flag
from runner.core.errors import RequestError


def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="before: run directory, folder of them, or glob; a run's id or a beginning of it; last or last~N: all runs of a command",
            metavar="A",
            autocompletion=complete_run,
            show_default=False,
        ),
    ] = "",
    b: Annotated[
        str, typer.Argument(help="after: the same", metavar="B", autocompletion=complete_run, show_default=False)
    ] = "",
    *,
    since: Annotated[
        Text, flag("--since", help="runs from then on, against those before: yesterday, or a day (UTC)", metavar="DAY")
    ] = None,
    fail_on_regression: Annotated[
        str | None,
        typer.Option(
            "--fail-on-regression",
            help="exit with 4 where a trial is slower by more, e.g. 3%, and that is no chance",
            metavar="SHARE",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print it as Markdown")] = False,
) -> None:
    """Compare runs of the same trials: what got slower, what faster, how sure that is, and what else is different about them."""
    from runner.commands import compare_flow  # noqa: PLC0415 - commands load what they need

    if as_json and as_markdown:
        raise RequestError("--json and --markdown exclude each other; leave one of them out")
    sides = compare_flow.since(since, place=a, more=b) if since else compare_flow.sides(a, b)
    compare_flow.compare_runs(
        *sides, threshold=fail_on_regression, form="json" if as_json else "markdown" if as_markdown else "table"
    )
