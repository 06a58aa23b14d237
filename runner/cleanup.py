"""`dlscale clean`: takes away the containers that a killed run left."""

from __future__ import annotations

import sys

from runner.engines import docker
from runner.engines.base import EngineError
from runner.errors import RequestError


def clean() -> None:
    """Remove every container of the suite and say which.

    Raises:
        RequestError: no Docker engine answers, so there is nothing to ask.
    """
    try:
        client = docker.connect()
    except EngineError as error:
        raise RequestError(f"{error}; there are no containers to remove") from error
    removed = docker.remove_all(client)
    sys.stdout.write("".join(f"removed {name}\n" for name in removed) or "nothing to remove\n")
