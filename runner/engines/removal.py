"""How a container goes: the engine removes it when it ends, also where nobody is left to ask for that; and by force before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from runner.engines.base import EngineError, as_engine_error

if TYPE_CHECKING:
    from docker import APIClient
    from requests import Response

# An engine that is removing a container already takes moments; on a disk that others fill with an image, seconds.
_REMOVAL_S: Final = 30
_IN_PROGRESS: Final = 409
# As long as the SDK waits for any other answer.
_ANSWER_S: Final = 60


def follow(api: APIClient, identifier: str) -> Response:
    """Ask for a container's exit code before it is started, since none can be asked once the engine has removed it.

    Returns:
        What will hold it, `{"StatusCode": 0}`, when it has ended; the engine listens once it has sent the headers.

    Raises:
        docker.errors.APIError, requests.RequestException: the engine would not.
    """
    # The SDK's own `wait` returns with the code, and nobody knows when it began to listen.
    response: Response = api.post(
        f"{api.base_url}/v{api.api_version}/containers/{identifier}/wait",
        params={"condition": "next-exit"},
        stream=True,
        timeout=_ANSWER_S,
    )
    response.raise_for_status()
    connection: Any = response.raw.connection
    connection.sock.settimeout(None)  # it listens; a training may take days
    return response


def remove(api: APIClient, identifier: str) -> bool:
    """Remove a container with its anonymous volumes, whatever it does, and wait until it is gone.

    Returns:
        Whether it was there; False too where the engine does not answer.
    """
    from docker.errors import APIError, NotFound  # noqa: PLC0415 - loaded with the client

    with contextlib.suppress(EngineError), as_engine_error():
        try:
            api.remove_container(identifier, force=True, v=True)
        except NotFound:
            return False
        except APIError as error:
            if error.status_code != _IN_PROGRESS:
                raise
            api.wait(identifier, timeout=_REMOVAL_S, condition="removed")
        return True
    return False
