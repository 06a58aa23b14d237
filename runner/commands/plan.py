"""`dlscale plan`: what `bench` would run, as command lines, or as what a queue takes."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from runner.commands.options import Text, flag, takes
from runner.core import parsing
from runner.core.request import Request

Format = Literal["commands", "sbatch"]


@takes(*Request.model_fields)
def plan(
    request: Request,
    *,
    form: Annotated[
        Text, flag("--format", help="commands (default), or sbatch: a script for Slurm's queue", metavar="FORMAT")
    ] = None,
) -> None:
    """Print the exact command lines that bench would run, or what a queue takes; start nothing."""
    if parsing.choice("FORMAT", form, Format) == "sbatch":
        from runner.plan.slurm import sbatch

        sys.stdout.write(sbatch(request, sys.argv))
        return
    from runner.run.bench import dry_run

    raise typer.Exit(dry_run(request))
