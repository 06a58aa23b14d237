"""Types of a run's files: its plan, its outcome, and its record with every figure and its provenance."""

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

# For a job without a container, `Outcome.containers` has this prefix and its session id in place of an engine's id.
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
"""Each status as a verb phrase."""


class Outcome(Frozen):
    """How a run ended.

    Attributes:
        reason: one sentence; None if the run succeeded.
        exit_codes: by container; absent for a container that did not exit on its own.
        started: the runner's monotonic clock in seconds when the creation of the first container began.
        containers: by name, the identifier of a container that the kernel's view of its processes contains (`Container.identifier`).
        lost: nodes that stopped answering, which ended the run.
        cut: containers that wrote a line longer than the limit (`engines/base.py` `LONGEST`).
        phases_s: seconds of each phase, as measured by the runner (`create`, `total`) or reported by the programs (`import`, ...; the
            slowest rank's).
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
        """One sentence about a run that did not succeed, `the run timed out: no end after 900 s`; empty if it did."""
        return () if self.status == "ok" else (f"the run {ENDED[self.status]}: {self.reason}",)


SCHEMA_VERSION: Final = 1

EVENTS: Final = "events.jsonl"


class ImageUsed(Frozen):
    """The image that ran; without a container (`id` None), the locked requirements or the host's software. `digest` is a registry's, or the SIF's SHA-256."""

    reference: str
    id: str | None
    digest: str | None
    lock_sha256: str | None


class EngineDetails(Frozen):
    """Details of the engine that ran the containers; `reason` says why, if it is not the first choice.

    `confined`: whether jobs had a read-only root and only the capabilities that they need; None in Kubernetes and in older records.
    """

    version: str | None
    reason: str | None
    confined: bool | None = None


class Ratio(Frozen):
    """A ratio to the one-device baseline; `ci95` is null for the same reason as in `Throughput`."""

    value: float
    ci95: Interval | None


class ScalingFigures(Frozen):
    """Speedup and efficiency against a run that differs only in scale; None without such a run, or for the reason in `withheld`."""

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
    """Everything about one run; `dlscale regrade` recomputes the derived parts from the raw files."""

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
        """One sentence that names the containers whose log is truncated; None if all logs are complete."""
        names = ", ".join(name.removeprefix(f"dlscale-{self.run_id}-") for name in self.outcome.cut)
        return f"the log of {names} was cut where a line was longer than is kept" if names else None

    @property
    def concurrent(self) -> bool:
        """Whether it belongs to a comparison of concurrent trainings, which has no place in a scaling table."""
        return isinstance(self.trial, Trial) and self.trial.concurrent is not None

    @property
    def profiled(self) -> bool:
        """Whether it was a profiling pass, which has no figures for tables of measured runs."""
        return isinstance(self.trial, Trial) and self.trial.profile is not None


class RunPlan(Frozen):
    """The planned run, written before the first container starts."""

    run_id: FileName
    trial: AnyTrial
    containers: tuple[ContainerSpec, ...]
    command_lines: tuple[str, ...]

    @property
    def nodes(self) -> dict[str, str]:
        """The node of each container."""
        return {spec.name: spec.node for spec in self.containers}

    @property
    def monitors(self) -> dict[str, str]:
        """The node of each sampler's container."""
        return {spec.name: spec.node for spec in self.containers if spec.role == "monitor"}
