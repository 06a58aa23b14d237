"""The types of a study: `StudyRequest` asks for it, `cells.py` plans its `Cell`s for a machine, `flow.py` runs them, `reproduction.py` judges the `CellRun`s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from pydantic import Field, field_validator

from runner.core.frozen import FileName, Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.request import Device, EngineName, Interconnect, Request
from runner.core.trial import AnyTrial, Case, ExternalTrial, Trial
from runner.core.wire import Link
from runner.results.published.findings import Finding, Metric
from runner.results.published.model import Conditions, Identifier

Scale = Literal["full", "short", "small"]


SHARED: Final = (
    *("framework", "version", "device", "hosts", "cluster", "slurm_flags", "engine", "image", "mounts", "data", "out"),
)
"""Fields of `Request` that `reproduce` takes as `bench` does, for all runs of a study; `framework` is then in place of the source's."""


NOTHING: Final = Request()


class StudyRequest(Frozen):
    """What was asked for: `bench` has what every run of the study gets (`SHARED`), `cells` begin the ids of those to run.

    The command of `bench` is where the source's own program lies in its image; only the blocks that name it run then.
    """

    study: str | None = None
    scale: Scale = "full"
    cells: tuple[str, ...] = ()
    bench: Request = NOTHING
    dry_run: bool = False


State = Literal["training", "idle"]
Indicated = Literal["indicated", "not indicated"]
FigureVerdict = (
    Literal["reproduced", "differs", "not comparable", "not measured", "shape agrees", "shape differs"] | Indicated
)
FindingVerdict = Literal["holds", "does not hold", "not testable here"] | Indicated

INDICATED: Final[Mapping[FigureVerdict | FindingVerdict, Indicated]] = {
    "reproduced": "indicated",
    "shape agrees": "indicated",
    "holds": "indicated",
    "differs": "not indicated",
    "shape differs": "not indicated",
    "does not hold": "not indicated",
}
"""What verdicts become that rest on degraded or on too few runs."""


class Usable(Frozen):
    """Software for a study: whether it trains on one device or one node only, and why it can't run here (None where it can).

    What is `given` is no image of the suite: another one, or what is installed on the machine.
    """

    framework: str
    version: str
    device: Device
    alone: bool = False
    one_node: bool = False
    given: bool = Field(default=False, exclude=True)
    misfit: str | None = None


class Machine(Frozen):
    """What a study is run on; `device` stands for the source's GPUs, `devices` are GPUs, or cores, of each node, `cores` those of the first.

    `gpu` is the source's id of this GPU, None on CPUs and where it has none such; `hosts` is HOSTS, of several real machines.
    """

    name: str
    device: Device
    device_name: str
    devices: tuple[int, ...]
    gpu: Identifier | None = None
    cores: int
    engine: EngineName
    may_emulate: bool
    hosts: str | None = None
    images: tuple[Usable, ...]

    @property
    def in_words(self) -> str:
        """Its devices, counted: `1 GPU`, `2 CPU cores`."""
        count = sum(self.devices)
        return f"{count} {'GPU' if self.device == 'gpu' else 'CPU core'}{'' if count == 1 else 's'}"


class Altered(Frozen):
    """A difference to the source's run: `declared` by the study, or found in the plan or the records."""

    field: str
    published: str
    here: str
    declared: bool = False


class Pick(Frozen):
    """Which runs of a request are a cell's: by `interconnect` between hosts, by `link` between emulated nodes; `measured` ones or passes alone.

    `own_program`: they are of the source's, which is none of the suite's.
    """

    devices: int
    nodes: int = 1
    link: Link | None = None
    interconnect: Interconnect = "auto"
    case: Case | None = None
    measured: bool = True
    own_program: bool = False

    def takes(self, trial: AnyTrial) -> bool:
        """Whether a run of the request is the cell's; all trainings of a case are, on however many devices each."""
        if isinstance(trial, ExternalTrial) or self.own_program:
            return isinstance(trial, ExternalTrial) and self.own_program and trial.world_size == self.devices
        if not (self.measured or trial.profile):
            return False
        if self.case is not None:
            return trial.concurrent is not None and trial.concurrent.case == self.case
        if (trial.world_size, trial.nodes) != (self.devices, self.nodes) or trial.concurrent is not None:
            return False
        if self.nodes == 1 or self.interconnect != "auto":
            return self.nodes == 1 or trial.interconnect == self.interconnect
        return trial.link == self.link

    def wants(self, trial: AnyTrial) -> bool:
        """Whether a run of the request is needed: the cell's own, and the one-device baseline of a measured one on several devices."""
        if self.takes(trial):
            return True
        scales = self.measured and self.devices > 1 and self.case is None
        alone = isinstance(trial, Trial) and trial.profile is None and trial.concurrent is None
        return scales and alone and trial.world_size == 1


class Cell(Frozen):
    """One run of a source; one that is `extra` stands beside those, for a machine too small for them.

    `where` has the source's terms, but for `gpu`, which is this machine's (None where the source has none such), and `gpus`, which are CPU
    workers where there is no GPU. `request` is of `bench`, shared by a curve; None where this hardware can't run it, for the reason `why`.
    `altered` is known before it runs, without the device. `whole_time`: its training time is its program's, from start to end.
    """

    id: str
    block: Identifier
    where: Conditions
    case: str | None = None
    request: Request | None = None
    pick: Pick | None = None
    why: str | None = None
    altered: tuple[Altered, ...] = ()
    extra: bool = False
    whole_time: bool = False


class CellRun(Frozen):
    """A cell with the records of all its runs (repeats, passes under a profiler, the trainings of a case), or `why` it has none or failed."""

    cell: Cell
    runs: tuple[RunRecord, ...] = ()
    why: str | None = None


class Observation(Frozen):
    """One measured quantity, in the terms of a published one: `where` and `case` are the cell's, with `gpu_index` where it is of one device.

    `name` is a kernel's or a call's; `epoch` and `iterations` are those after which it was had. `ci95` is over `repeats`, processes started anew
    (0 of what a source prints), and None where these are too few.
    """

    metric: Metric
    unit: str
    value: float
    ci95: Interval | None = None
    freedom: float | None = None
    where: Conditions
    case: str | None = None
    state: State | None = None
    epoch: int | None = None
    name: str | None = None
    iterations: int | None = None
    device: Device
    device_name: str
    method: str | None = None
    repeats: int = 1
    degraded: int = 0
    runs: tuple[str, ...]
    altered: tuple[str, ...] = ()
    extra: bool = False

    @field_validator("altered", mode="before")
    @classmethod
    def _by_their_fields(cls, altered: Iterable[object]) -> tuple[object, ...]:
        """Earlier versions wrote each difference whole."""
        return tuple(one["field"] if isinstance(one, Mapping) else one for one in altered)


class Missing(Frozen):
    """A quantity that a cell does not give, and why."""

    cell: str
    metric: str
    why: str


class Comparison(Frozen):
    """One published figure (None: several values) beside what was measured in its place; `ratio` is measured ÷ published.

    `fields` is everything in which the two runs differ, the device in words; `doubts` say why the measured one is inconclusive.
    """

    figure: Identifier
    metric: Metric
    unit: str
    where: str
    conditions: Conditions
    published: Decimal | None
    bound: Literal[">", "<"] | None = None
    approx: bool = False
    measured: Observation | None = None
    ratio: float | None = None
    ratio_ci95: Interval | None = None
    tolerance: float | None = None
    verdict: FigureVerdict
    fields: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    why: str | None = None


class Judgement(Frozen):
    """The verdict on a finding, with the figures behind it or what is missing (`why`), the ids of its runs, and why these are inconclusive."""

    finding: Finding
    verdict: FindingVerdict
    why: str
    runs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class CellOutcome(Frozen):
    """A cell without its records: `skipped` where this hardware can't run it, `open` where the study was stopped before.

    `runs` are directories beside the file. Of the usable ones `measured` have no profiler and `passes` one; `degraded` are so for their `doubts`.
    """

    id: str
    block: Identifier
    where: Conditions
    case: str | None = None
    status: Literal["ran", "failed", "skipped", "open"]
    why: str | None = None
    altered: tuple[Altered, ...] = ()
    extra: bool = False
    runs: tuple[FileName, ...] = ()
    measured: int = 0
    passes: int = 0
    degraded: int = 0
    doubts: tuple[str, ...] = ()
    software: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


class Reproduction(Frozen):
    """The results of a study on one machine, written as `<stamp>-<study>.reproduction.json` beside its run directories."""

    study: Identifier
    source: Identifier
    title: str
    scale: Scale
    machine: Machine
    made_at: datetime
    git: str | None = None
    cells: tuple[CellOutcome, ...]
    observations: tuple[Observation, ...]
    missing: tuple[Missing, ...] = ()
    comparisons: tuple[Comparison, ...]
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...] = ()
