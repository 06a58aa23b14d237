"""A flag of the command line, as every command has it: optional text, checked by `request`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from runner.core.errors import RequestError

Text = str | None


def flag(*names: str, help: str, metavar: str = "TEXT") -> Any:  # noqa: A002 - typer's own name
    """A flag that shows no default of its own: what is not given is left to the suite."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def named_directory(say: str) -> Callable[[str], Path]:
    """What reads a directory of the command line: an empty one is refused, as `Path("")` would be the one that the user is in.

    Args:
        say: what to type instead.
    """

    def read(text: str) -> Path:
        if not text.strip():
            raise RequestError(f"the directory is empty; say which, {say}")
        return Path(text)

    return read
