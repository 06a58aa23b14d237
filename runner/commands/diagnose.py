"""`dlscale diagnose` finds nodes that are slower than the others or than a baseline; `dlscale baseline` makes one of what it measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from runner.commands.options import Text, flag, takes
from runner.core.request import Request

# A short training of each node by itself; GPUs and workers are those of one node.
FIELDS: Final = (
    *(
        "framework",
        "version",
        "model",
        "hosts",
        "nodes",
        "cluster",
        "slurm_flags",
        "gpus",
        "workers",
        "device",
        "batch",
        "image_size",
        "precision",
    ),
    *("preset", "threads", "iterations", "warmup", "repeat", "engine", "timeout_s", "out"),
)


@takes(*FIELDS, usual={"repeat": 5})
def diagnose(
    request: Request,
    *,
    baseline: Annotated[
        Text, flag("--baseline", help="what to expect of a node, a file of `dlscale baseline`", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
) -> None:
    """Run the same short training, matrix products, all-reduce, memory and disk probes on every node, and name those that are slow (exit code 4)."""
    from runner.experiments.diagnose import diagnose as run

    expected = Path(baseline) if baseline else None
    raise typer.Exit(run(request, baseline=expected, command=tuple(sys.argv), as_json=as_json))


def baseline(
    places: Annotated[list[Path], typer.Argument(help="files that `dlscale diagnose` left, or folders with them")],
    *,
    out: Annotated[Path, typer.Option("--out", help="file to write", metavar="FILE")] = Path("baseline.json"),
) -> None:
    """Pool what `dlscale diagnose` measured on healthy nodes into what is expected of others."""
    from runner.experiments.diagnose import make_baseline

    make_baseline(places, out=out)
