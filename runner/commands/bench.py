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
    if request.command:  # commands load what they need
        from runner.run.external import bench as run  # noqa: PLC0415
        from runner.run.external import dry_run as preview  # noqa: PLC0415
    else:
        from runner.run.bench import bench as run  # noqa: PLC0415
        from runner.run.bench import dry_run as preview  # noqa: PLC0415
    raise typer.Exit(preview(request) if dry_run else run(request, command=tuple(sys.argv)))
