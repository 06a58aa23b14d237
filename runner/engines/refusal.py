"""What a Docker engine, or the connection to it, says when it does not do what it was asked: out of the SDK's exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from runner.engines.base import EngineRefusedError, EngineSilentError


@contextlib.contextmanager
def as_engine_error() -> Iterator[None]:
    """Turn the SDK's errors, and those of the connection below it, into an EngineError with the engine's own words."""
    from docker.errors import APIError, DockerException  # noqa: PLC0415 - loaded with the client
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException) as error:
        if isinstance(error, APIError):
            raise EngineRefusedError(str(error.explanation or error).strip()) from error
        raise EngineSilentError(str(error).strip()) from error
