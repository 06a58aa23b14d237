"""Which user a job runs as, and what belongs to it."""

from __future__ import annotations

import os
from pathlib import Path

from runner.core.container_spec import IMAGE_USER


def job_user() -> str:
    """Numeric `uid:gid`: the runner's own, so that private programs and data stay readable; the image's user for root."""
    uid = os.getuid()
    return f"{uid}:{os.getgid()}" if uid else IMAGE_USER


def give(directory: Path, user: str) -> None:
    """Let a job write to a directory that the runner made: only root runs jobs as somebody else."""
    if os.getuid() == 0:
        os.chown(directory, *(int(part) for part in user.split(":")))
