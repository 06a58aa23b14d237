"""Where text for people goes. Names of files, hosts and images are printed as they are, never read as markup or as the name of an emoji."""

from __future__ import annotations

import io
import os
import sys
from typing import IO

from rich.console import Console


def open_console(
    *, stderr: bool = False, soft_wrap: bool = False, width: int | None = None, file: IO[str] | None = None
) -> Console:
    """A console on standard output, standard error or a file; `soft_wrap` leaves long lines whole."""
    return Console(
        stderr=stderr, soft_wrap=soft_wrap, width=width, file=file, markup=False, emoji=False, highlight=False
    )


def replace_unprintable() -> None:
    """Have standard output write `?` for what its encoding lacks, where it would end the program."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def discard_output() -> None:
    """Throw away what standard output still holds, which Python would else try to write once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
