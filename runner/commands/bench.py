"""`dlscale bench`: every field of a request is an option of it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runner.commands.options import takes
from runner.core.errors import RequestError
from runner.core.request import Request


@takes(*Request.model_fields)
def bench(
    request: Request,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the figures as JSON")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="end on every table: steps, utilisation, telemetry, records")
    ] = False,
) -> None:
    """Train in a container, measure, and leave a record: in an image of the suite or in --image IMG; -- COMMAND ... there is a program of yours."""
    from runner.run import bench as flow

    if dry_run and as_json:
        raise RequestError("--dry-run prints command lines, and --json the figures of runs; leave one of them out")
    raise typer.Exit(
        flow.dry_run(request)
        if dry_run
        else flow.bench(request, command=tuple(sys.argv), as_json=as_json, verbose=verbose)
    )
