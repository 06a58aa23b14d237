"""Which user a job runs as."""

from __future__ import annotations

import os

from runner.spec import IMAGE_USER

__all__ = ["IMAGE_USER", "job_user"]


def job_user() -> str:
    """Numeric `uid:gid`: the runner's own, so that private programs and data stay readable; the image's user for root."""
    uid = os.getuid()
    return f"{uid}:{os.getgid()}" if uid else IMAGE_USER
