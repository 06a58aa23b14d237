"""Texts compared with golden files, which `DLSCALE_GOLDEN=write` rewrites after an intended change."""

import io
import os

from rich.console import Console


def expected(path, made):
    """Return the file's text; with DLSCALE_GOLDEN=write, `made` is written to it first."""
    if os.environ.get("DLSCALE_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def printed(show, *what, width):
    """Output of `show(console, *what)` on `width` columns, without trailing spaces."""
    console = Console(width=width, file=io.StringIO(), highlight=False)
    show(console, *what)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())
