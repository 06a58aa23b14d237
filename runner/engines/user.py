"""Which user a job runs as."""

from __future__ import annotations

import os
from typing import Final

# The user that every image of the suite has for this.
IMAGE_USER: Final = "10001:10001"


def job_user() -> str:
    """Numeric `uid:gid`: the runner's own, so that private programs and data stay readable; the image's user for root."""
    uid = os.getuid()
    return f"{uid}:{os.getgid()}" if uid else IMAGE_USER
