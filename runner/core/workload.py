"""`Workload`: models, the programs that train them and their defaults, read from `workloads/<name>/workload.yaml`.

Requests are checked against a workload here, so that each error is one sentence (a RequestError) before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, field_validator, model_validator

from runner.core import yamlfile
from runner.core.errors import RequestError, nearest, unknown
from runner.core.events import ProfileKind, Region
from runner.core.frozen import Frozen
from runner.core.parsing import MAX_NUMBER
from runner.core.provenance import SUITE_ROOT
from runner.core.request import Device, DialectName, Mode, Precision, StrategyName, Technique
from runner.core.strategies import STRATEGIES

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Setting = int | float | str
# Names of settings that the runner itself reads.
SEQUENCE, PARTS_OF_BATCH, SHARED_BY = "sequence-length", "gradient-accumulation", "tensor-parallel"
NEW_TOKENS = "new-tokens"  # tokens of a sequence that inference generates
ProgramMode = Literal["train", "infer"]
# JPEGs in class folders, WAV files with transcripts, a file of token numbers, or nothing.
DataKind = Literal["images", "audio", "tokens", "none"]

# The workload of a request that names no model.
DEFAULT: Final = "imagenet_cnn"


class SyntheticBand(Frozen):
    """Bounds on the first loss on random images with random labels: least and greatest, in units of ln(classes).

    ln(classes) is the cross-entropy of a uniform guess, with which a network with small last-layer weights starts.
    """

    first_loss_factors: tuple[Positive, Positive]


class RealBand(Frozen):
    """Condition on the losses on real images: the mean of the last `compared_share` of them is below that of the first such share.

    Fewer than `minimum_iterations` are not judged: they are too noisy.
    """

    compared_share: Annotated[float, Field(gt=0, le=0.5)]
    minimum_iterations: Annotated[int, Field(ge=2)]


class SanityBand(Frozen):
    """A workload's conditions on losses, for both kinds of data."""

    synthetic: SyntheticBand
    real: RealBand


class Defaults(Frozen):
    """Defaults of a request for one kind of device."""

    model: str
    image_size: Count | None = None  # height and width in pixels; None for the model's published size
    batch: Count  # samples a device
    iterations: Count  # measured, on one device
    warmup: Count  # iterations before the measured ones; the first allocates memory and tunes kernels


class Model(Frozen):
    """A model of a workload; sizes are height and width in pixels, None if samples are not images."""

    name: str  # the value of MODEL
    image_size: Count | None = None  # published size
    min_image_size: Count | None = None  # the smallest that its layers accept
    learning_rate: Positive  # for the workload's default batch
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # None for the workload's
    parameters: Mapping[str, Count]  # number of trainable parameters by framework that builds it
    settings: Mapping[str, Setting] = {}  # flags in addition to those of every program
    limits: Mapping[str, Count] = {}  # the greatest value of some settings
    parts: Count = 1  # equal parts that each of its layers can be cut into
    source: str  # the paper

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Frameworks whose programs build this model."""
        return tuple(self.parameters)


class Workload(Frozen):
    """A training task with its programs, models and defaults. Most fields are by framework, since each has its own program."""

    name: str  # also its folder's name
    description: str
    source: str
    programs: Mapping[ProgramMode, Mapping[str, str]]  # by mode and framework: a file of the workload's folder
    converge: tuple[str, ...] = ()  # frameworks whose training program validates after each epoch
    gpu_decode: tuple[str, ...] = ()  # frameworks whose training program can decode JPEGs on the GPU
    lacks: Mapping[str, tuple[StrategyName, ...]] = {}  # the framework's strategies that its program does not support
    cuts: tuple[str, ...] = ()  # frameworks whose program supports strategies that cut the network
    data: DataKind = "images"
    batches: str | None = None  # the setting that holds the number of batches an iteration reads; None for one batch
    dialects: Mapping[str, DialectName] = {}  # of programs whose figures are read from the framework's own log
    profiles: Mapping[str, tuple[ProfileKind, ...]] = {}  # profiling passes that each program supports
    regions: Mapping[str, tuple[Region, ...]] = {}  # parts of a step that its profile can be narrowed to
    unit: str  # plural noun of the samples that throughput counts
    training_samples: Count  # in one epoch; converts iterations to epochs
    validation_samples: Count | None = None  # synthetic ones; None if validation needs real data
    num_classes: Annotated[int, Field(ge=2)] | None = None  # of synthetic labels; None without classification
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None  # of SGD; None with another optimizer
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # None if the optimizer has none
    settings: Mapping[str, Setting] = {}  # of all models, like a model's own
    inference_settings: Mapping[str, Setting] = {}  # replace `settings` with MODE=infer
    choices: Mapping[str, tuple[str, ...]] = {}  # allowed words of each setting that is a word
    needs: Mapping[str, tuple[Precision, ...]] = {}  # precisions of which a setting (`NAME=VALUE`) needs one
    fixed: Mapping[str, tuple[str, ...]] = {}  # settings for which a framework's program supports only the usual value
    defaults: Mapping[Device, Defaults]
    precisions: Mapping[str, Mapping[Device, tuple[Precision, ...]]]  # of training, by framework
    inference_precisions: Mapping[str, Mapping[Device, tuple[Precision, ...]]] = {}  # if other than of training
    techniques: Mapping[str, Mapping[Device, tuple[Technique, ...]]] = {}  # in the order of an ablation's lines
    inference_techniques: Mapping[str, Mapping[Device, tuple[Technique, ...]]] = {}
    sanity: SanityBand | None = None
    models: Annotated[tuple[Model, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_consistent(self) -> Workload:
        """Refuse duplicate models, and names that appear in one part of the file but are missing in another."""
        names = [model.name for model in self.models]
        if self.batches and any(self.batches not in {**self.settings, **model.settings} for model in self.models):
            raise ValueError(f"batches names the setting {self.batches!r}, which is missing in settings")
        if len(set(names)) < len(names):
            raise ValueError("a model is listed twice; keep one of each name")
        settings = (self.settings, self.inference_settings, *(model.settings for model in self.models))
        words = {name for own in settings for name, value in own.items() if isinstance(value, str)}
        if unknown := {name for fixed in self.fixed.values() for name in fixed} - self.settings.keys():
            raise ValueError(f"fixed names {', '.join(sorted(unknown))}, missing in settings")
        if unlisted := words - self.choices.keys():
            raise ValueError(f"choices lacks {', '.join(sorted(unlisted))}; list the allowed words")
        for device, defaults in self.defaults.items():
            if defaults.model not in names:
                raise ValueError(f"the default model of {device} is {defaults.model!r}, which models does not list")
        named = {name for model in self.models for name in model.frameworks}
        offered = (
            self.precisions,
            self.dialects,
            self.profiles,
            self.regions,
            self.techniques,
            self.inference_techniques,
            self.fixed,
            self.lacks,
            self.cuts,
        )
        for framework in named.union(self.converge, self.gpu_decode, *offered):
            if framework not in self.programs["train"]:
                raise ValueError(f"{framework!r} has no program; add it to programs.train")
        return self

    @field_validator("programs")
    @classmethod
    def _can_train(cls, programs: Mapping[ProgramMode, Mapping[str, str]]) -> Mapping[ProgramMode, Mapping[str, str]]:
        if "train" not in programs:
            raise ValueError("no program trains; add programs.train")
        return programs

    def batches_an_iteration(self, settings: Mapping[str, Setting]) -> int:
        """Return the number of batches that one iteration reads."""
        return int(settings[self.batches]) if self.batches else 1

    def settings_of(self, model: Model, requested: Sequence[tuple[str, str]], *, mode: Mode) -> dict[str, Setting]:
        """Return all settings of a model, with the requested ones applied. Raises RequestError for an unknown name or value."""
        own, others = self.settings, self.inference_settings
        if mode == "infer":
            own, others = others, own
        found = {**own, **{name: value for name, value in model.settings.items() if name in own or name not in others}}
        for name, word in requested:
            if name not in found:
                known = f"it has {nearest(name, found)}" if found else "leave it out"
                raise RequestError(f"SETTINGS={name} is not a setting of MODEL={model.name}; {known}")
            found[name] = self._setting(model, name, word, usual=found[name])
        if int(found.get(NEW_TOKENS, 0)) >= int(found.get(SEQUENCE, 1)):
            raise RequestError(
                f"SETTINGS={NEW_TOKENS}={found[NEW_TOKENS]} leaves no room for a prompt in {SEQUENCE}={found[SEQUENCE]}; ask for fewer new tokens"
            )
        return found

    def _setting(self, model: Model, name: str, word: str, *, usual: Setting) -> Setting:
        if isinstance(usual, str):
            if word not in self.choices[name]:
                raise RequestError(f"SETTINGS={name}={word} is wrong; ask for {name}={' or '.join(self.choices[name])}")
            return word
        if usual == 0:
            raise RequestError(f"SETTINGS={name} is not a setting of MODEL={model.name}; leave it out")
        try:
            value = type(usual)(word)
        except ValueError:
            value = 0
        if not 0 < value <= model.limits.get(name, MAX_NUMBER):
            most = f", {model.limits[name]} at most" if name in model.limits else ""
            raise RequestError(f"SETTINGS={name}={word} is invalid for MODEL={model.name}; give a number above 0{most}")
        return value

    def check_needs(self, settings: Mapping[str, Setting], *, framework: str, precision: Precision) -> None:
        """Refuse a setting that needs another precision, or whose value the framework's program does not support."""
        for name in self.fixed.get(framework, ()):
            if (value := settings.get(name, self.settings[name])) != self.settings[name]:
                raise RequestError(f"SETTINGS={name}={value} is not offered by FRAMEWORK={framework}; leave it out")
        for name, value in settings.items():
            known = self.needs.get(f"{name}={value}", (precision,))
            if precision not in known:
                needed = " or ".join(known)
                raise RequestError(
                    f"SETTINGS={name}={value} needs PRECISION={needed}, not {precision}; ask for PRECISION={needed}"
                )

    def offers(self, strategy: StrategyName, framework: str) -> bool:
        """Whether the framework's program supports a strategy."""
        lacks = strategy in self.lacks.get(framework, ())
        return not lacks and (framework in self.cuts or not STRATEGIES[strategy].cuts)

    def frameworks(self, mode: Mode) -> tuple[str, ...]:
        """Return the frameworks that offer a mode."""
        return self.converge if mode == "converge" else tuple(self.programs.get(mode, ()))

    def program(self, framework: str, mode: Mode = "train", *, model: str | None = None) -> str:
        """Return a framework's program for a mode, relative to `workloads/`. Raises RequestError if this workload has none.

        The error names the frameworks that have one, of these only those that offer `model`, if it is given.
        """
        known = self.frameworks(mode)
        if not known:
            offered = [name for name in get_args(Mode) if self.frameworks(name)]
            raise RequestError(f"MODE={mode} is not offered by {self.name}; ask for {' or '.join(offered)}")
        if framework not in known:
            frameworks = next((one.frameworks for one in self.models if one.name == model), ())
            if offered := [one for one in known if one in frameworks]:
                raise RequestError(
                    f"MODEL={model} with MODE={mode} has no program for FRAMEWORK={framework}; "
                    f"ask for FRAMEWORK={' or '.join(offered)}"
                )
            raise RequestError(
                f"MODE={mode} of {self.name} has no program for FRAMEWORK={framework}; known: {nearest(framework, known)}"
            )
        return f"{self.name}/{self.programs['infer' if mode == 'infer' else 'train'][framework]}"

    def find_model(self, name: str, *, framework: str) -> Model:
        """Look a model up by name. Raises RequestError if it does not exist, or if the framework does not offer it."""
        known = {model.name: model for model in self.models}
        if name not in known:
            raise RequestError(unknown("MODEL", name, known))
        if framework not in known[name].frameworks:
            offered = [model.name for model in self.models if framework in model.frameworks]
            raise RequestError(
                f"MODEL={name} is not offered by FRAMEWORK={framework} (only by {', '.join(known[name].frameworks)}); "
                f"{framework} offers: {nearest(name, offered)}"
            )
        return known[name]

    def image_size(self, model: Model, *, device: Device, requested: int | None = None) -> int | None:
        """Return height and width in pixels: as requested, else the default, but at least the model's minimum; None if samples are not images."""
        if model.image_size is None:
            if requested is not None:
                raise RequestError(
                    f"IMAGE_SIZE={requested} given, but MODEL={model.name} takes no images; leave it out"
                )
            return None
        smallest = model.min_image_size or 1
        if requested is None:
            return max(self.defaults[device].image_size or model.image_size, smallest)
        if requested < smallest:
            raise RequestError(
                f"IMAGE_SIZE={requested} is too small for MODEL={model.name}, whose layers need {model.min_image_size} pixels; "
                f"ask for {model.min_image_size} or more"
            )
        return requested

    def check_precision(self, precision: Precision, *, framework: str, device: Device, mode: Mode = "train") -> None:
        """Refuse a precision in which the framework's program does not train, or infer."""
        trained = self.precisions.get(framework, {}).get(device, ())
        inferred = self.inference_precisions.get(framework, {}).get(device, trained)
        offered = inferred if mode == "infer" else trained
        if precision not in offered:
            of_mode = "" if mode == "train" else f" with MODE={mode}"
            infer = ", or for MODE=infer" if precision in inferred else ""
            raise RequestError(
                f"PRECISION={precision} is not offered by FRAMEWORK={framework} on DEVICE={device}{of_mode}; "
                f"ask for {' or '.join(offered) or 'another framework'}{infer}"
            )

    def techniques_of(self, *, framework: str, device: Device, mode: Mode) -> tuple[Technique, ...]:
        """Return the techniques that the framework's program offers, in the order of an ablation's lines."""
        offered = self.inference_techniques if mode == "infer" else self.techniques
        return offered.get(framework, {}).get(device, ())

    def check_gpu_decode(self, *, framework: str, device: Device) -> None:
        """Refuse to decode on a GPU if the framework's program can't, or if CPUs train."""
        if framework not in self.gpu_decode:
            can = f"ask for FRAMEWORK={' or '.join(self.gpu_decode)}, or " if self.gpu_decode else ""
            raise RequestError(f"DECODE=gpu of {self.name} is not offered by FRAMEWORK={framework}; {can}leave it out")
        if device == "cpu":
            raise RequestError("DECODE=gpu needs a GPU that trains, and this runs on DEVICE=cpu; leave it out")

    def check_profiles(self, kinds: Sequence[ProfileKind], *, region: Region | None = None, framework: str) -> None:
        """Refuse kinds of profile that the framework's program does not support, or a region that it can't profile separately."""
        known = self.profiles.get(framework, ())
        if unknown := [kind for kind in kinds if kind not in known]:
            raise RequestError(
                f"PROFILE={','.join(unknown)} is not offered by FRAMEWORK={framework}; "
                f"ask for {' or '.join(known) or 'another framework'}"
            )
        if region and region not in (narrowed := self.regions.get(framework, ())):
            instead = f"ask for {' or '.join(narrowed)}, or leave it out" if narrowed else "leave it out"
            raise RequestError(f"PROFILE_REGION={region} is not offered by FRAMEWORK={framework}; {instead}")


@cache
def load_workloads(root: Path) -> tuple[Workload, ...]:
    """Load every `workloads/<name>/workload.yaml` below `root`, the suite's checkout, in order of name; cached."""
    found = []
    for path in sorted(root.glob("workloads/*/workload.yaml")):
        workload = yamlfile.load(path, Workload)
        if workload.name != path.parent.name:
            raise RequestError(f"{path}: name is {workload.name!r}, its folder {path.parent.name!r}; make them equal")
        for mode, programs in workload.programs.items():
            for framework, program in programs.items():
                if not (path.parent / program).is_file():
                    raise RequestError(
                        f"{path}: programs.{mode}.{framework} is {program!r}, which is not in {path.parent}; correct it"
                    )
        found.append(workload)
    _refuse_duplicates(found)
    return tuple(found)


@cache
def _models() -> Mapping[str, tuple[Workload, Model]]:
    """Return every model of the suite by name, with its workload."""
    return {model.name: (workload, model) for workload in load_workloads(SUITE_ROOT) for model in workload.models}


def shown_settings(settings: Mapping[str, Setting], *, model: str, mode: Mode) -> dict[str, Setting]:
    """Select the settings of a trial that its reader must know: sequence lengths, and those that differ from the model's defaults."""
    if not settings or model not in _models():
        return dict(settings)
    workload, found = _models()[model]
    usual = workload.settings_of(found, (), mode=mode)
    return {name: own for name, own in settings.items() if name in (SEQUENCE, NEW_TOKENS) or own != usual.get(name)}


def _refuse_duplicates(workloads: Sequence[Workload]) -> None:
    """Refuse two models of the same name: MODEL alone selects the workload."""
    owner: dict[str, str] = {}
    for workload in workloads:
        for model in workload.models:
            if model.name in owner:
                raise RequestError(
                    f"workloads {owner[model.name]} and {workload.name} both have a model {model.name!r}; rename one of them"
                )
            owner[model.name] = workload.name


def choose_workload(workloads: Sequence[Workload], model: str | None) -> Workload:
    """Return the workload that has a model; the default workload if no model is named."""
    owners = {found.name: workload for workload in workloads for found in workload.models}
    if model is None:
        return next(workload for workload in workloads if workload.name == DEFAULT)
    if model not in owners:
        raise RequestError(unknown("MODEL", model, owners))
    return owners[model]
