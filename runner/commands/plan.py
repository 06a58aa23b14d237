"""`dlscale plan`: what `bench` would run, as command lines, or as what a cluster takes; `dlscale collect` makes the records of the latter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from runner.commands.options import Text, flag, takes
from runner.core import parsing
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.plan.kubernetes import Kind

Format = Literal["commands", "sbatch", "k8s"]


@takes(*Request.model_fields)
def plan(
    request: Request,
    *,
    form: Annotated[
        Text,
        flag(
            "--format",
            help="commands (default), sbatch: a script for Slurm, or k8s: a folder of manifests for Kubernetes; each host is a pod",
        ),
    ] = None,
    kind: Annotated[
        Text, flag("--kind", help="with --format=k8s: job (default; a JobSet where it takes one), trainjob or mpijob")
    ] = None,
    registry: Annotated[
        Text, flag("--registry", help="with --format=k8s: where the cluster finds the images", metavar="HOST/PATH")
    ] = None,
) -> None:
    """Print the exact command lines that bench would run, or write what a cluster takes; start nothing."""
    chosen = parsing.choice("FORMAT", form, Format) or "commands"
    if chosen != "k8s" and (kind or registry):
        raise RequestError("KIND and REGISTRY are about pods; add FORMAT=k8s, or leave them out")
    if chosen == "commands":
        from runner.run.bench import dry_run

        raise typer.Exit(dry_run(request))
    if chosen == "sbatch":
        from runner.plan.slurm import sbatch

        sys.stdout.write(sbatch(request, sys.argv))
        return
    from runner.run.pods import write_plan

    of_kind = cast("Kind", parsing.choice("KIND", kind, Kind) or "job")
    raise typer.Exit(write_plan(request, kind=of_kind, registry=registry or None, command=tuple(sys.argv)))


def collect(
    directory: Annotated[Path, typer.Argument(help="folder that `dlscale plan --format=k8s` wrote, after its run.sh")],
) -> None:
    """Make records of what pods said: figures and validity, and what nobody knows of a run that the runner had no part in."""
    from runner.run.pods import collect as make

    raise typer.Exit(make(directory))
