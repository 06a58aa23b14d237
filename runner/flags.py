"""A flag of the command line, as every command has it: optional text, checked by `request`."""

from __future__ import annotations

from typing import Any

import typer

Text = str | None


def flag(*names: str, help: str, metavar: str = "TEXT") -> Any:  # noqa: A002 - typer's own name
    """A flag that shows no default of its own: what is not given is left to the suite."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)
