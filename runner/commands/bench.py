"""`dlscale bench`: every field of a request is an option of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.commands.options import Text, flag, takes
from runner.core import parsing
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.engines.process import become
from runner.plan import slurm
from runner.plan.formats import FORMATS


@takes(*Request.model_fields)
def bench(
    request: Request,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the figures as JSON")] = False,
    form: Annotated[
        Text, flag("--format", help=f"with --dry-run: print it as {' or '.join(FORMATS)} takes it", metavar="FORMAT")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="end on every table: steps, utilisation, telemetry, records")
    ] = False,
) -> None:
    """Train in a container, measure, and leave a record: in an image of the suite or in --image IMG; -- COMMAND ... there is a program of yours."""
    from runner.run import bench as flow

    if dry_run and as_json:
        raise RequestError("--dry-run prints command lines, and --json the figures of runs; leave one of them out")
    words = (str(Path(sys.argv[0]).absolute()), *sys.argv[1:])
    if form:
        if not dry_run:
            raise RequestError(f"--format {form} prints what would run; add --dry-run, or leave it out")
        sys.stdout.write(FORMATS[parsing.one_of("FORMAT", form, FORMATS)](request, words))
        return
    if request.cluster:
        argv = slurm.salloc(request, words)
        if not dry_run:
            become(argv)
        sys.stdout.write(f"{shlex.join(argv)}\n")
        return
    raise typer.Exit(
        flow.dry_run(request)
        if dry_run
        else flow.bench(request, command=tuple(sys.argv), as_json=as_json, verbose=verbose)
    )
