"""Texts held against golden files, which `DLSCALE_GOLDEN=write` writes again after a wanted change."""

import os


def expected(path, made):
    """What the file says; with DLSCALE_GOLDEN=write it is first given what was made."""
    if os.environ.get("DLSCALE_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    return path.read_text(encoding="utf-8")
