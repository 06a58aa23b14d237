"""`Outcome`: how a run ended, whatever it was."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

# What `Outcome.containers` has in place of an engine's id for a job in no container: this, and the number of its session.
SESSION: Final = "session:"

Status = Literal["ok", "failed", "timeout", "silent", "interrupted"]


class Outcome(BaseModel):
    """How a run ended.

    Attributes:
        reason: one sentence, None when all went well.
        exit_codes: by container; absent for one that did not end by itself.
        started: the runner's monotonic clock in seconds when the first container began to be created.
        containers: by name, what the kernel's view of a process tells a container by (`Container.identifier`).
        phases_s: seconds of each phase: what the runner saw (`create`, `total`) and what the programs said
            (`import`, ...; the slowest rank's).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    reason: str | None
    exit_codes: dict[str, int]
    started: float
    phases_s: dict[str, float]
    containers: dict[str, str] = {}
