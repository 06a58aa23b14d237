"""The project's files, as in a clone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tracked(pattern: str = "*") -> list[Path]:
    """Tracked files whose path matches; without git, the project's files are unknown, and the test is skipped."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", pattern], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout, so the project's files are unknown", allow_module_level=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
