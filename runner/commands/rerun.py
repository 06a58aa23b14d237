"""`dlscale rerun`: the command of a run again, with what it left to the suite as the run had it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.commands.options import RUN_HELP, complete_run, named_run
from runner.core.console import complain
from runner.core.errors import RequestError
from runner.results.store import read_record


def rerun(
    context: typer.Context,
    run: Annotated[
        Path,
        typer.Argument(
            help=RUN_HELP,
            metavar="RUN",
            parser=named_run("for example dlscale rerun last"),
            autocompletion=complete_run,
        ),
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
) -> None:
    """Run the command of a run again: all that it measured, with the framework, version, network and engine that the run had."""
    from runner.report.page.runs import again  # noqa: PLC0415 - commands load what they need

    program, *words = again(read_record(run)) or ("",)
    if not words:
        raise RequestError(f"{run}: its record does not have the command that was typed; `dlscale bench` takes another")
    if dry_run:
        words.insert(1, "--dry-run")
    complain([f"again: {shlex.join((program, *words))}"])
    sys.argv[1:] = words  # what the new record says was typed
    context.find_root().command(words)
