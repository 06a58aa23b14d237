"""`dlscale bench`: every field of a request is an option of it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runner.commands.options import takes
from runner.core.request import Request


@takes(*Request.model_fields)
def bench(
    request: Request,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
) -> None:
    """Train in a container, measure, and leave a record: in an image of the suite or in --image IMG; -- COMMAND ... there is a program of yours."""
    from runner.run import bench as flow  # noqa: PLC0415 - commands load what they need

    raise typer.Exit(flow.dry_run(request) if dry_run else flow.bench(request, command=tuple(sys.argv)))
