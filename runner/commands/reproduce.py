"""`dlscale reproduce` and `dlscale studies`: words in, the study's flow called, an exit code out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.commands.options import Text, flag
from runner.core import parsing
from runner.core import request as ask
from runner.experiments.studies.request import Scale, StudyRequest

_SCALE = flag("--scale", help="full (default), or small: shorter runs of the same shape")
_DEVICE = flag("--device", help="cpu or gpu (default: GPUs where there are some)")
_HOSTS = flag("--hosts", "-H", help="machines for runs on several nodes (default: emulated ones)", metavar="FILE|LIST")
_ENGINE = flag("--engine", help="docker or venv (default: docker where it answers)")
_DATA = flag("--data", help="real images for every run that takes images", metavar="PATH")


def reproduce(
    study: Annotated[str, typer.Argument(help="which one; `dlscale studies` lists them")],
    *,
    scale: Annotated[Text, _SCALE] = None,
    device: Annotated[Text, _DEVICE] = None,
    hosts: Annotated[Text, _HOSTS] = None,
    framework: Annotated[
        Text, flag("--framework", help="take this one in place of the source's, where that does not run")
    ] = None,
    engine: Annotated[Text, _ENGINE] = None,
    data: Annotated[Text, _DATA] = None,
    out: Annotated[
        Text, flag("--out", help="where records and tables go (default: results/MACHINE)", metavar="DIR")
    ] = None,
    cells: Annotated[
        Text, flag("--cells", help="only runs whose names begin so, as the plan has them", metavar="NAME[,NAME]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would run, and what can't; start nothing")
    ] = False,
) -> None:
    """Run a published study again, as far as this hardware can, and hold its figures and findings against what comes out."""
    from runner.experiments.studies.flow import reproduce as flow  # noqa: PLC0415 - commands load what they need

    where = _where(scale=scale, device=device, hosts=hosts, engine=engine)
    options = where.model_copy(
        update={
            "study": study,
            "framework": framework or None,
            "data": Path(data) if data else None,
            "out": Path(out) if out else None,
            "cells": tuple(name.strip() for name in cells.split(",")) if cells else (),
            "dry_run": dry_run,
        }
    )
    raise typer.Exit(flow(options, command=tuple(sys.argv)))


def studies(
    *,
    scale: Annotated[Text, _SCALE] = None,
    device: Annotated[Text, _DEVICE] = None,
    hosts: Annotated[Text, _HOSTS] = None,
    engine: Annotated[Text, _ENGINE] = None,
) -> None:
    """List the studies, and how many of their runs this hardware can run."""
    from runner.experiments.studies.flow import list_studies  # noqa: PLC0415 - commands load what they need

    list_studies(_where(scale=scale, device=device, hosts=hosts, engine=engine))


def _where(*, scale: Text, device: Text, hosts: Text, engine: Text) -> StudyRequest:
    given = {
        "scale": parsing.choice("SCALE", scale, Scale),
        "device": parsing.choice("DEVICE", device, ask.Device),
        "hosts": hosts or None,
        "engine": parsing.choice("ENGINE", engine, ask.EngineName),
    }
    return StudyRequest.model_validate({name: value for name, value in given.items() if value is not None})
