"""The commands that take a request: `bench`, `plan` and `diagnose`; and `collect` and `baseline`, which read the files of `plan` and `diagnose`.

Every field of a request is an option of `bench` and `plan`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, Literal, cast

import typer

from runner.commands.options import Text, directory_argument, flag, takes
from runner.core import parsing
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.plan.kubernetes import Kind


@takes(*Request.model_fields)
def bench(
    request: Request,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the figures as JSON")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="end with every table: steps, utilisation, telemetry, records")
    ] = False,
) -> None:
    """Train in a container, measure, and leave a record: in an image of the suite, or in --image IMG, where -- COMMAND ... runs your own program."""
    from runner.run import bench as flow

    if dry_run and as_json:
        raise RequestError("--dry-run prints command lines, and --json the figures of runs; leave one of them out")
    raise typer.Exit(
        flow.dry_run(request)
        if dry_run
        else flow.bench(request, command=tuple(sys.argv), as_json=as_json, verbose=verbose)
    )


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
        Text, flag("--kind", help="with --format=k8s: job (default; a JobSet if needed), trainjob or mpijob")
    ] = None,
    registry: Annotated[
        Text, flag("--registry", help="with --format=k8s: where the cluster finds the images", metavar="HOST/PATH")
    ] = None,
) -> None:
    """Print the exact command lines that bench would run, or write a script or manifests for a cluster; start nothing."""
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
    directory: Annotated[
        Path,
        directory_argument(
            "folder that `dlscale plan --format=k8s` wrote, after its run.sh",
            example="DIR=results/kubernetes/... with make, or dlscale collect results/kubernetes/...",
        ),
    ],
) -> None:
    """Make records of pods' logs: figures and validity, and which facts are unknown because the runner did not start the run."""
    from runner.run.pods import collect as make

    raise typer.Exit(make(directory))


# A short training of each node on its own; GPUs and workers are per node.
DIAGNOSE_FIELDS: Final = (
    *("framework", "version", "model", "hosts", "nodes", "cluster", "slurm_flags", "gpus", "workers", "device"),
    *("batch", "image_size", "precision", "preset", "threads", "iterations", "warmup", "repeat"),
    *("engine", "timeout_s", "out"),
)


@takes(*DIAGNOSE_FIELDS, defaults={"repeat": 5})
def diagnose(
    request: Request,
    *,
    baseline: Annotated[
        Text, flag("--baseline", help="expected figures of a node, a file of `dlscale baseline`", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
) -> None:
    """Run the same short training, matrix products, all-reduce, memory and disk probes on every node, and name those that are slow (exit code 4)."""
    from runner.experiments.diagnose import diagnose as run

    expected = Path(baseline) if baseline else None
    raise typer.Exit(run(request, baseline=expected, command=tuple(sys.argv), as_json=as_json))


def baseline(
    places: Annotated[list[Path], typer.Argument(help="files that `dlscale diagnose` wrote, or folders of them")],
    *,
    out: Annotated[Path, typer.Option("--out", help="file to write", metavar="FILE")] = Path("baseline.json"),
) -> None:
    """Pool the measurements of healthy nodes by `dlscale diagnose` into expected figures for other nodes."""
    from runner.experiments.diagnose import make_baseline

    make_baseline(places, out=out)
