"""Where what can be fetched or built again is kept between runs: wheels, environments, bases, packed data."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$DLSCALE_CACHE`, else `dlscale` in the user's cache directory (XDG Base Directory Specification)."""
    chosen = os.environ.get("DLSCALE_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlscale"
