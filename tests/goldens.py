"""Texts held against golden files, which `DLSCALE_GOLDEN=write` writes again after a wanted change."""

import io
import os

from rich.console import Console


def expected(path, made):
    """What the file says; with DLSCALE_GOLDEN=write it is first given what was made."""
    if os.environ.get("DLSCALE_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def printed(show, *what, width):
    """What `show(console, *what)` prints on so many columns, without spaces at the ends of lines."""
    console = Console(width=width, file=io.StringIO(), highlight=False)
    show(console, *what)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())
