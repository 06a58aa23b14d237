"""The schema of `workloads/studies/<id>.yaml`, the run matrix of a published source in its own terms, and its loading and validation.

A study says what the source ran, which image and model replace it here, how a short run is shortened, and the tolerances of figures. Figures
and findings are in `results/published/<source>.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from runner.core import yamlfile
from runner.core.errors import RequestError, nearest, unknown
from runner.core.events import ProfileKind, Region
from runner.core.frozen import Frozen
from runner.core.log_pattern import LogPattern
from runner.core.provenance import SUITE_ROOT
from runner.core.request import Device, DialectName, GpuMemory, Interconnect, KvStore, Mode, Precision, StrategyName
from runner.core.trial import Case
from runner.core.workload import Workload, load_workloads
from runner.experiments.studies.model import Scale
from runner.images.catalog import Catalog, load_images
from runner.results.published import load as published
from runner.results.published.findings import METRICS, Metric
from runner.results.published.load import line_of
from runner.results.published.model import Conditions, Identifier, Published

Count = Annotated[int, Field(ge=1)]
BatchOf = Literal["device", "node", "all"]
ShortenedName = Literal[
    "iterations", "epochs", "samples", "warmup", "fit", "image_size", "profile_after", "profile_iterations"
]
LENGTHS: Final[tuple[ShortenedName, ...]] = ("samples", "epochs", "iterations")
"""Three ways to give the length of a run; a short run may use another than the source's."""
NOT_STATED: Final = "not stated"
"""Replaces a setting that a source leaves out."""


class Difference(Frozen):
    """A declared difference between the runs of a block, or of some of its networks, and the source's, whatever hardware they run on.

    It applies to `models`, the source's names of networks, and to `ran`, the MODELs that replace them (all if empty); with `stands_in`, only if
    another framework replaces the source's. A `field` has the name of its setting (`batch` for `batches`), so that a small scale can replace `here`.
    """

    field: Annotated[str, Field(min_length=1)]
    published: Annotated[str, Field(min_length=1)]
    here: Annotated[str, Field(min_length=1)]
    models: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    stands_in: bool = False

    @model_validator(mode="after")
    def _differs(self) -> Difference:
        if self.published == self.here:
            raise ValueError(f"{self.field}: `published` and `here` are equal; remove this difference")
        return self


class Point(Frozen):
    """One scale of a block: `gpus` counts those of all nodes; `batch` is as printed, or None to use each of the block's `batches`."""

    gpus: Count
    nodes: Count = 1
    batch: Count | None = None


class Shorter(Frozen):
    """How a scale shortens a block: smaller values of what is given, on the same axes; `iterations` are those of one device.

    `batches` are those that it keeps (all if empty); `batch_divisor` divides every batch, so that their proportions stay. `also` has further
    scales, for machines too small for the source's; findings may be tested on them, figures are not.
    """

    iterations: Count | None = None
    epochs: Count | None = None
    samples: Count | None = None
    warmup: Count | None = None
    fit: Count | None = None
    image_size: Count | None = None
    models: Mapping[str, str] = {}
    batches: tuple[Count, ...] = ()
    batch_divisor: Count = 1
    profile_after: Count | None = None
    profile_iterations: Count | None = None
    also: tuple[Point, ...] = ()


class Network(Frozen):
    """What replaces a network of the source: a wire between hosts; `rate`, in tc's notation, between emulated nodes (None: no limit)."""

    interconnect: Interconnect
    rate: str | None = None


PLACEHOLDERS: Final = frozenset({"model", "batch", "gpus", "indices", "image_size", "iterations", "data"})
"""Placeholders that the arguments of a program may contain."""


class Program(Frozen):
    """The program that the source ran, for users who have it in an image of its time (PROGRAM); its samples are images.

    Attributes:
        file: its name; another file extension makes no difference.
        url: where it was published.
        models: its name for each network of the block.
        arguments: its flags, for a run as long as the source's; placeholders are `{model}`, `{batch}` (of all devices), `{gpus}` (their number),
            `{image_size}`, `{iterations}` (steps, each by all devices: the block's ÷ their number), `{data}` (the folder of DATA).
        on_gpus: further flags for GPUs; `{indices}` are theirs, separated by commas.
        dialect, pattern: how its log is read.
    """

    file: Annotated[str, Field(min_length=1)]
    url: str
    models: Annotated[Mapping[str, str], Field(min_length=1)]
    arguments: tuple[str, ...]
    on_gpus: tuple[str, ...] = ()
    dialect: DialectName | None = None
    pattern: LogPattern | None = None

    @model_validator(mode="after")
    def _has_one_log_format(self) -> Program:
        if (self.dialect is None) == (self.pattern is None):
            raise ValueError(f"{self.file}: give either `dialect` or `pattern`, to read its log")
        return self

    @model_validator(mode="after")
    def _has_known_placeholders(self) -> Program:
        for word in (*self.arguments, *self.on_gpus):
            if unknown := {name for _, name, _, _ in Formatter().parse(word) if name is not None} - PLACEHOLDERS:
                raise ValueError(
                    f"{self.file}: unknown placeholder {{{min(unknown)}}} in {word}; known: {', '.join(sorted(PLACEHOLDERS))}"
                )
        return self

    def is_at(self, path: str) -> bool:
        """Whether `path`, in an image, is this program's."""
        return PurePosixPath(path).stem == PurePosixPath(self.file).stem


class Block(Frozen):
    """Runs of one kind: every combination of models, points, batches, precisions, networks and cases.

    Attributes:
        where: the conditions that all its figures share, in the source's terms; `framework` is the suite's, if it is not the source's.
        device: `cpu` if the source used no GPU; then all cores of the machine are one device.
        models: the source's name of each network → MODEL.
        gpu_memory: how the source's framework allocated GPU memory; applies to TensorFlow only.
        gpu_only: why it is meaningless without a GPU, in half a sentence.
        batches: as printed, per device, per node, or of all devices (`batch_of`); the source's figures name it `batch_term`.
        image_size: height and width in pixels; None if samples are not images.
        iterations: measured iterations of one device; several devices share them, so that all runs of a curve take the same number of samples.
            `epochs` (passes over the training samples) or `samples` (total, of inference at several batches) may replace them.
        networks: names of `Study.networks`; runs on several nodes are repeated over each.
        profile: profiling passes; with `passes_only`, the measured runs next to them are left out.
        cases: the source's name of each way to run `concurrent` trainings → the suite's.
        fit: iterations of training before inference, on real images; without DATA, a sample of images is made.
        real: whether to train on real images too, as profiling the input requires.
        whole_time: whether the source's training time is that of the whole program, with start-up and input, e.g. from the time stamps of a log.
        program: the source's own program, if it was published.
        differs: declared differences from the source's runs. Whatever records contain (framework, version, precision, devices, libraries,
            wires) is compared automatically, and changes by a scale are known; neither is declared.
        note: decisions that were necessary because the source leaves something out.
    """

    id: Identifier
    says: str
    where: Conditions
    framework: str | None = None
    device: Device = "gpu"
    models: Annotated[Mapping[str, str], Field(min_length=1)]
    mode: Mode = "train"
    strategy: StrategyName | None = None
    kvstore: KvStore | None = None
    gpu_memory: GpuMemory = "as-needed"
    gpu_only: str | None = None
    points: Annotated[tuple[Point, ...], Field(min_length=1)] = (Point(gpus=1),)
    batches: tuple[Count, ...] = ()
    batch_of: BatchOf = "device"
    batch_term: Literal["batch", "batch_per_gpu", "global_batch"] = "batch"
    image_size: Count | None = None
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] = ("fp32",)
    iterations: Count | None = None
    epochs: Count | None = None
    samples: Count | None = None
    warmup: Count | None = None
    networks: tuple[Identifier, ...] = ()
    profile: tuple[ProfileKind, ...] = ()
    profile_after: Count | None = None
    profile_iterations: Count | None = None
    profile_region: Region | None = None
    passes_only: bool = False
    concurrent: Count | None = None
    cases: Mapping[str, Case] = {}
    fit: Count | None = None
    real: bool = False
    whole_time: bool = False
    program: Program | None = None
    short: Shorter = Shorter()
    small: Shorter = Shorter()
    differs: tuple[Difference, ...] = ()
    note: str | None = None

    @property
    def named_framework(self) -> str:
        """The suite's name of its framework."""
        return self.framework or self.where.framework or ""

    def shorter(self, scale: Scale) -> Shorter:
        """Return how a scale shortens it; full scale shortens nothing."""
        return {"full": Shorter(), "short": self.short, "small": self.small}[scale]

    @model_validator(mode="after")
    def _is_consistent(self) -> Block:
        """Refuse a block that yields no run, or is ambiguous."""
        own = [point for point in self.points if point.batch is not None]
        lengths = [self.iterations, self.epochs, self.samples]
        for wrong, sentence in (
            (
                bool(self.batches) == bool(own) or len(own) not in (0, len(self.points)),
                "give `batches`, or a batch for every point",
            ),
            (
                bool(self.cases) != (self.concurrent is not None),
                "`concurrent` says how many trainings, `cases` in which ways; give both or none",
            ),
            (
                not {*self.short.batches, *self.small.batches} <= {*self.batches},
                "a scale keeps some of the block's `batches`, and names another",
            ),
            (self.passes_only and not self.profile, "`passes_only` without `profile` leaves nothing to run"),
            (any(one.nodes > 1 for one in self.points) and not self.networks, "runs on several nodes need `networks`"),
            (
                any(one.gpus % one.nodes for one in (*self.points, *self.short.also, *self.small.also)),
                "the devices of a point must be divisible by its nodes",
            ),
            (self.framework is None and self.where.framework is None, "`where` names no framework"),
            (
                self.program is not None and set(self.program.models) != set(self.models),
                "`program` must name the same networks as `models`",
            ),
            (
                lengths.count(None) < len(lengths) - 1,
                "iterations, epochs and samples exclude each other; give one of them",
            ),
            *(
                (name not in self.models, f"{one.field} differs for {name!r}, which is not in `models`")
                for one in self.differs
                for name in sorted(one.models)
            ),
        ):
            if wrong:
                raise ValueError(f"{self.id}: {sentence}")
        return self


class Same(Frozen):
    """The hardware that counts as the source's, and why: `gpus` has the driver's names by the source's id of a GPU."""

    gpus: Mapping[Identifier, tuple[str, ...]] = {}
    why: str


class Tolerance(Frozen):
    """How far measured ÷ published may be from 1: a `share` of 0.1 allows 0.9 to 1.1. No source states one, so `why` justifies it."""

    metrics: Annotated[tuple[str, ...], Field(min_length=1)]
    share: Annotated[float, Field(gt=0, lt=1)]
    why: str


class Shown(Frozen):
    """A table, figure or experiment of the source: `what` it is, its `metrics`, and the `blocks` that run it here.

    Without blocks it is data only, such as a specification, or can't be run for the physical reason `cant`.
    """

    what: Annotated[str, Field(min_length=1)]
    metrics: tuple[Metric, ...] = ()
    blocks: tuple[Identifier, ...] = ()
    cant: str | None = None


class Study(Frozen):
    """One study; STUDY is the `id`, the name of its file.

    `networks` replace the source's; the first of `tolerances` that names a metric applies. Each run is done `repeat` times, once at small scale.
    `differs` applies to every block; `notes` are what a reader of the table has to know. `nearest` lists, by framework, the versions nearest to the
    source's software, which precede the newest that runs here. `shows` lists everything in the source.
    """

    id: Identifier
    source: Identifier
    title: str
    networks: Mapping[Identifier, Network] = {}
    nearest: Mapping[str, tuple[str, ...]] = {}
    same: Same
    tolerances: tuple[Tolerance, ...]
    repeat: Count = 3
    differs: tuple[Difference, ...] = ()
    blocks: Annotated[tuple[Block, ...], Field(min_length=1)]
    shows: tuple[Shown, ...] = ()
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _declares_each_field_once(self) -> Study:
        models = {model for block in self.blocks for model in block.models}
        for difference in self.differs:
            if unknown := set(difference.models) - models:
                raise ValueError(f"{difference.field} differs for {min(unknown)!r}, which no block has")
        for block in self.blocks:
            for model in block.models:
                fields = [one.field for one in self.declared(block, model)]
                if twice := next((field for field in fields if fields.count(field) > 1), None):
                    raise ValueError(f"{block.id}: `differs` has {twice} more than once for {model}; keep one")
        return self

    def block(self, name: str) -> Block:
        """Return the block of a cell. Raises RequestError if the study no longer has it."""
        found = next((block for block in self.blocks if block.id == name), None)
        if found is None:
            raise RequestError(f"STUDY={self.id} has no block {name!r} any more; run the study again")
        return found

    def declared(
        self, block: Block, model: str | None, *, ran: str | None = None, framework: str | None = None
    ) -> tuple[Difference, ...]:
        """Return the declared differences of a network in a block. `ran`, the MODEL, and `framework` are the block's by default."""
        ran = ran or block.models.get(model or "")
        other = framework not in (None, block.named_framework)
        return tuple(
            one
            for one in (*self.differs, *block.differs)
            if (not one.models or model in one.models)
            and (not one.ran or ran in one.ran)
            and (other or not one.stands_in)
        )

    def tolerance(self, metric: str) -> Tolerance | None:
        """Return the tolerance of a quantity; None if the study states none."""
        return next((one for one in self.tolerances if metric in one.metrics), None)


DIRECTORY: Final = SUITE_ROOT / "workloads" / "studies"

Mistake = tuple[str, str]
"""A word near the mistake in the file, and a sentence about it."""


def study_names(directory: Path = DIRECTORY) -> tuple[str, ...]:
    """Return the ids of all studies, in order."""
    return tuple(sorted(path.stem for path in directory.glob("*.yaml")))


def load_study(name: str, directory: Path = DIRECTORY) -> tuple[Study, Published]:
    """Return a study with its source. Raises RequestError if there is no such study, or, naming file and line, if its file is wrong."""
    path = directory / f"{name}.yaml"
    if not path.is_file():
        raise RequestError(
            unknown("STUDY", name, study_names(directory))
            if name
            else f"no STUDY is named; known: {', '.join(study_names(directory))}"
        )
    study = yamlfile.load(path, Study)
    if study.id != name:
        raise RequestError(f"{path}:1: id is {study.id!r}; rename the file or the id")
    sources = {file.stem: file for file in published.DIRECTORY.glob("*.yaml")}
    if study.source not in sources:
        raise RequestError(
            f"{path}:{line_of(path, study.source)}: no published source {study.source!r}; known: {nearest(study.source, sources)}"
        )
    source = published.load(sources[study.source])
    for word, sentence in _mistakes(study, source):
        raise RequestError(f"{path}:{line_of(path, word)}: {sentence}")
    return study, source


def _mistakes(study: Study, source: Published) -> Iterator[Mistake]:
    catalog, workloads = load_images(SUITE_ROOT), load_workloads(SUITE_ROOT)
    wires = {wire.id for wire in source.hardware.wires}
    yield from _unknown_names(study.networks, "network", wires, of="the source")
    yield from _unknown_names(study.same.gpus, "GPU", {gpu.id for gpu in source.hardware.gpus}, of="the source")
    for tolerance in study.tolerances:
        yield from _unknown_names(tolerance.metrics, "metric", set(METRICS), of="the suite")
    for framework, versions in study.nearest.items():
        known = {image.version for image in catalog.images if image.framework == framework}
        yield from _unknown_names(versions, "version", known, of=framework)
    ids = [block.id for block in study.blocks]
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        yield name, f"two blocks have the id {name!r}; rename one of them"
    for shown in study.shows:
        yield from _unknown_names(shown.blocks, "block", set(ids), of="`blocks`")
    cases = {case for runs in source.runs for case in runs.cases}
    for block in study.blocks:
        yield from _unknown_names(block.networks, "network", set(study.networks), of="`networks`")
        if block.where.network:
            yield from _unknown_names((block.where.network,), "network", wires, of="the source")
        yield from _unknown_names(block.cases, "case", cases, of="the source")
        yield from _unknown_names(
            {**block.short.models, **block.small.models}, "model", set(block.models), of=f"block {block.id}"
        )
        yield from _models(block, workloads, catalog)


def _models(block: Block, workloads: Sequence[Workload], catalog: Catalog) -> Iterator[Mistake]:
    """Yield models, modes, precisions, profiles and image sizes that the framework's programs lack, on each device that it has an image for."""
    framework = block.named_framework
    owners = {model.name: (workload, model) for workload in workloads for model in workload.models}
    for name in (*block.models.values(), *block.short.models.values(), *block.small.models.values()):
        yield from _unknown_names((name,), "model", set(owners), of="the suite")
        workload, model = owners[name]
        for known, of in (
            (set(model.frameworks), f"model {name}"),
            (set(workload.frameworks(block.mode)), f"MODE={block.mode} of {name}"),
        ):
            for _, sentence in _unknown_names((framework,), "framework", known, of=of):
                yield f"id: {block.id}", f"block {block.id}: {sentence}"
        devices = {image.device for image in catalog.images if image.framework == framework}
        for device, precision in product(
            sorted(devices if block.device == "gpu" else {block.device}), block.precisions
        ):
            try:
                workload.check_precision(precision, framework=framework, device=device, mode=block.mode)
                workload.check_profiles(block.profile, region=block.profile_region, framework=framework)
                workload.image_size(model, device=device, requested=block.image_size)
            except RequestError as error:
                yield f"id: {block.id}", f"block {block.id}: {error}"


def _unknown_names(names: Iterable[str], what: str, known: set[str], *, of: str) -> Iterator[Mistake]:
    for name in names:
        if name not in known:
            yield name, f"{of} has no {what} {name!r}; known: {nearest(name, known) or 'none'}"
