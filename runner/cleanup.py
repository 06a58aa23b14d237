"""`dlscale clean`: takes away the containers that a killed run left."""

from __future__ import annotations

import sys

from runner.engines import docker


def clean() -> None:
    """Remove every container of the suite and say which.

    Raises:
        RequestError: no Docker engine answers, so there is nothing to ask.
    """
    removed = docker.remove_all(docker.connect_or_refuse())
    sys.stdout.write("".join(f"removed {name}\n" for name in removed) or "nothing to remove\n")
