"""The types of a study: `StudyRequest` is the user's, `cells.py` plans `Cell`s for a machine, `flow.py` runs them, `reproduction.py` judges the `CellRun`s."""

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
"""Fields of `Request` that `reproduce` takes as `bench` does, for all runs of a study; `framework` then replaces the source's."""


NOTHING: Final = Request()


class StudyRequest(Frozen):
    """The user's request: `bench` applies to every run of the study (`SHARED`), `cells` are prefixes of the ids of the cells to run.

    The command of `bench` is the path of the source's own program in its image; then only blocks that name this program run.
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
FindingVerdict = Literal["holds", "does not hold", "undecided", "not testable here"] | Indicated

INDICATED: Final[Mapping[FigureVerdict | FindingVerdict, Indicated]] = {
    "reproduced": "indicated",
    "shape agrees": "indicated",
    "holds": "indicated",
    "differs": "not indicated",
    "shape differs": "not indicated",
    "does not hold": "not indicated",
}
"""What a verdict becomes if it rests on degraded runs, or on too few."""


class Usable(Frozen):
    """Software for a study: if `alone`, it trains on one device only, if `one_node`, on one node only; `misfit` says why it can't run here.

    `given` software is not an image of the suite, but another image or what the machine has installed.
    """

    framework: str
    version: str
    device: Device
    alone: bool = False
    one_node: bool = False
    given: bool = Field(default=False, exclude=True)
    misfit: str | None = None


class Machine(Frozen):
    """The hardware of a study. `device` stands for the source's GPUs; `devices` counts GPUs, or cores, of each node, `cores` those of the first node.

    `gpu` is the source's id of this GPU, None on CPUs or if the source has no such GPU; `hosts` is the request's HOSTS, None without it.
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
        """The number of devices: `1 GPU`, `2 CPU cores`."""
        count = sum(self.devices)
        return f"{count} {'GPU' if self.device == 'gpu' else 'CPU core'}{'' if count == 1 else 's'}"


class Altered(Frozen):
    """A difference from the source's run, `declared` by the study or found in the plan or the records."""

    field: str
    published: str
    here: str
    declared: bool = False


class Pick(Frozen):
    """Selects a cell's runs from those of its request, by `interconnect` between hosts, by `link` between emulated nodes.

    `measured` is False if the cell has profiling passes only; `own_program` if it runs the source's program instead of the suite's.
    """

    devices: int
    nodes: int = 1
    link: Link | None = None
    interconnect: Interconnect = "auto"
    case: Case | None = None
    measured: bool = True
    own_program: bool = False

    def takes(self, trial: AnyTrial) -> bool:
        """Whether a run of the request is the cell's own. A case includes all its trainings, whatever their number of devices."""
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
        """Whether the cell needs a run of the request: its own, and the one-device baseline of a measured run on several devices."""
        if self.takes(trial):
            return True
        scales = self.measured and self.devices > 1 and self.case is None
        alone = isinstance(trial, Trial) and trial.profile is None and trial.concurrent is None
        return scales and alone and trial.world_size == 1


class Cell(Frozen):
    """One run of a source; an `extra` cell is an additional one, for a machine too small for the source's own.

    `where` is in the source's terms, except `gpu`, which is this machine's (None if the source has no such GPU), and `gpus`, which counts CPU
    workers if there is no GPU. `request` is for `bench`, and shared by the cells of a curve; None if this hardware can't run it, for the reason
    `why`. `altered` is known before the run, without the device. `whole_time`: the training time is that of the whole program, start to end.
    `samples`: of an inference, those that the source's time is of; None if that is the whole run.
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
    samples: int | None = None


class CellRun(Frozen):
    """A cell with the records of all its runs (repeats, profiling passes, trainings of a case), or `why` it has none or failed."""

    cell: Cell
    runs: tuple[RunRecord, ...] = ()
    why: str | None = None


class Observation(Frozen):
    """One measured quantity in a source's terms. `where` and `case` are the cell's; `gpu_index` is added for a single GPU's figure.

    `name` is a kernel's or a call's; `epoch` and `iterations` count those completed by then. `ci95` is over `repeats`, processes started anew
    (0 for printed figures), and None if these are too few.
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
        """Accept the full differences that earlier versions wrote."""
        return tuple(one["field"] if isinstance(one, Mapping) else one for one in altered)


class Missing(Frozen):
    """A quantity that a cell could not provide, and why."""

    cell: str
    metric: str
    why: str


class Comparison(Frozen):
    """One published figure (None: several values) with its measured counterpart; `ratio` is measured ÷ published.

    `among` are the smallest and the largest value if several cells match the figure equally well; `measured` is then of the largest batch, and
    there is no ratio. Nor is there one of a printed time to that of a shortened run. `fields` names all differences between the two runs, the
    device in words; `doubts` say why the measured figure is inconclusive.
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
    among: Interval | None = None
    ratio: float | None = None
    ratio_ci95: Interval | None = None
    tolerance: float | None = None
    verdict: FigureVerdict
    fields: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    why: str | None = None


class Judgement(Frozen):
    """The verdict on a finding; `why` has its figures, or what is missing, `runs` the ids behind them, `doubts` why these are inconclusive."""

    finding: Finding
    verdict: FindingVerdict
    why: str
    runs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class CellOutcome(Frozen):
    """A cell without its records: `skipped` if this hardware can't run it, `open` if the study was stopped before it ran.

    `runs` are directories next to the file. Of the usable runs, `measured` had no profiler and `passes` had one; `doubts` are the reasons of `degraded` ones.
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
    """The results of a study on one machine, written as `<stamp>-<study>.reproduction.json` next to its run directories."""

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
