"""`Outcome`: how a run ended, whatever it was."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

# What `Outcome.containers` has in place of an engine's id for a job in no container: this, and the number of its session.
SESSION: Final = "session:"

Status = Literal["ok", "failed", "timeout", "silent", "interrupted"]
ENDED: Final[Mapping[Status, str]] = MappingProxyType(
    {
        "ok": "ended well",
        "failed": "failed",
        "timeout": "timed out",
        "silent": "fell silent",
        "interrupted": "was interrupted",
    }
)
"""What a run did that has this status, as a verb."""


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

    @property
    def against(self) -> tuple[str, ...]:
        """What a run that did not end well did, in one sentence: `the run timed out: no end after 900 s`; nothing of one that did."""
        return () if self.status == "ok" else (f"the run {ENDED[self.status]}: {self.reason}",)
