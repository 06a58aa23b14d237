"""Asks the registry of an image whether it has it, through the engine, whose proxies and logins are the host's business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from runner.engines import docker as engine
from runner.engines.base import EngineError
from runner.engines.refusal import as_engine_error

_ANSWER_S: Final = 15


@dataclass(frozen=True)
class Answer:
    """What a registry said of a reference.

    Attributes:
        digest: the digest that it has; None if it has none to give.
        silence: why not, as the engine says; None where there is a digest.
    """

    digest: str | None
    silence: str | None


def ask(reference: str) -> Answer:
    """Ask the registry that a reference names; pulls nothing."""
    try:
        api: Any = engine.connect(timeout_s=_ANSWER_S).api
    except EngineError as error:
        return Answer(None, str(error))
    try:
        with as_engine_error():
            return Answer(str(api.inspect_distribution(reference)["Descriptor"]["digest"]), None)
    except EngineError as error:
        return Answer(None, str(error).rpartition(": ")[2])
