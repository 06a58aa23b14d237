"""`dlscale compare`: words in, a comparison out."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.core.errors import RequestError


def compare(
    a: Annotated[str, typer.Argument(help="before: run directory, folder of them, or glob", metavar="A")],
    b: Annotated[str, typer.Argument(help="after: the same", metavar="B")],
    *,
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
    from runner.commands.compare_flow import compare_runs  # noqa: PLC0415 - commands load what they need

    if as_json and as_markdown:
        raise RequestError("--json and --markdown exclude each other; leave one of them out")
    compare_runs(a, b, threshold=fail_on_regression, form="json" if as_json else "markdown" if as_markdown else "table")
