"""What a run leaves on file, typed: its plan, its outcome, and its record with every figure and its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from runner.core.container_spec import ContainerSpec
from runner.core.frozen import FileName, Frozen
from runner.core.measurement import Interval, Measurement
from runner.core.profile import Profile
from runner.core.provenance import Provenance
from runner.core.telemetry import Telemetry
from runner.core.transport import Transport
from runner.core.trial import AnyTrial, Trial

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


class Outcome(Frozen):
    """How a run ended.

    Attributes:
        reason: one sentence, None when all went well.
        exit_codes: by container; absent for one that did not end by itself.
        started: the runner's monotonic clock in seconds when the first container began to be created.
        containers: by name, what the kernel's view of a process tells a container by (`Container.identifier`).
        lost: nodes that did not answer any more, which ended the run.
        cut: containers that wrote a line longer than is kept (`engines/base.py` `LONGEST`).
        phases_s: seconds of each phase: what the runner saw (`create`, `total`) and what the programs said
            (`import`, ...; the slowest rank's).
    """

    status: Status
    reason: str | None
    exit_codes: dict[str, int]
    started: float
    phases_s: dict[str, float]
    containers: Mapping[str, str] = {}
    lost: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    @property
    def against(self) -> tuple[str, ...]:
        """What a run that did not end well did, in one sentence: `the run timed out: no end after 900 s`; nothing of one that did."""
        return () if self.status == "ok" else (f"the run {ENDED[self.status]}: {self.reason}",)


SCHEMA_VERSION: Final = 1

EVENTS: Final = "events.jsonl"


class ImageUsed(Frozen):
    """The image that ran, `digest` a registry's or the SHA-256 of the SIF that was made of it; without a container (then `id` is None) the locked requirements, or the machine's own software by its versions."""

    reference: str
    id: str | None
    digest: str | None
    lock_sha256: str | None


class EngineDetails(Frozen):
    """More about the engine that ran the containers; `reason` says why this one when it is not the first choice.

    `confined`: whether jobs had a root that they could not write to, and no rights; None in records older than this field.
    """

    version: str | None
    reason: str | None
    confined: bool | None = None


class Ratio(Frozen):
    """A ratio to the one-device baseline; `ci95` is null, as in `Throughput`."""

    value: float
    ci95: Interval | None


class ScalingFigures(Frozen):
    """Speedup and efficiency against a run that differs in scale only; None where there is none to hold against, or `withheld` says why."""

    baseline_run_id: FileName | None
    speedup: Ratio | None
    efficiency: Ratio | None
    superlinear: bool
    withheld: str | None = None


class Validity(Frozen):
    """Whether the figures may be used, and every reason against it."""

    status: Literal["valid", "degraded", "invalid"]
    reasons: tuple[str, ...]


class RunRecord(Frozen):
    """Everything about one run; `dlscale regrade` computes the derived parts again from the raw files."""

    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    run_id: FileName
    matrix_id: FileName
    trial: AnyTrial
    engine: str
    engine_details: EngineDetails
    image: ImageUsed
    outcome: Outcome
    measurement: Measurement
    scaling: ScalingFigures
    transport: Transport
    provenance: Provenance
    validity: Validity
    telemetry: Telemetry | None = None
    profile: Profile | None = None

    @property
    def cut(self) -> str | None:
        """Whose output was cut, in one sentence; None where all is in the logs."""
        names = ", ".join(name.removeprefix(f"dlscale-{self.run_id}-") for name in self.outcome.cut)
        return f"the log of {names} was cut where a line was longer than is kept" if names else None

    @property
    def concurrent(self) -> bool:
        """Whether it shows what trainings at once are worth, which is no figure for a scaling table."""
        return isinstance(self.trial, Trial) and self.trial.concurrent is not None

    @property
    def profiled(self) -> bool:
        """Whether it was a pass under a profiler, which has no figure for any table of measured runs."""
        return isinstance(self.trial, Trial) and self.trial.profile is not None


class RunPlan(Frozen):
    """What was going to be run: written before the first container starts."""

    run_id: FileName
    trial: AnyTrial
    containers: tuple[ContainerSpec, ...]
    command_lines: tuple[str, ...]

    @property
    def nodes(self) -> dict[str, str]:
        """By container, the node that it runs on."""
        return {spec.name: spec.node for spec in self.containers}

    @property
    def monitors(self) -> dict[str, str]:
        """By container, the node that a sampler looks at."""
        return {spec.name: spec.node for spec in self.containers if spec.role == "monitor"}
