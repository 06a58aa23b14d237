"""The format of images/versions.yaml, as types that refuse entries that no image could be built from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator

from runner.core.frozen import Frozen
from runner.core.request import StrategyName

Device = Literal["cpu", "gpu"]
Kind = Literal["wheels", "debian", "container"]
Brought = Literal["horovod", "dali"]


def _pinned(text: str) -> str:
    if [specifier.operator for specifier in Requirement(text).specifier] != ["=="]:
        raise ValueError("a requirement is pinned to one version: 'numpy==1.23.5'")
    return text


def _parsed_by(parse: Callable[[str], object], wanted: str) -> AfterValidator:
    """Validate a text by parsing it."""

    def check(text: str) -> str:
        try:
            parse(text)
        except (InvalidRequirement, InvalidSpecifier, InvalidVersion) as error:
            raise ValueError(f"not {wanted}") from error
        return text

    return AfterValidator(check)


Pin = Annotated[str, _parsed_by(_pinned, "a requirement like 'numpy==1.23.5'")]
PythonRange = Annotated[str, _parsed_by(SpecifierSet, "a range of Python versions like '>=3.10,<3.13'")]
DriverVersion = Annotated[str, _parsed_by(Version, "a driver version like '580.65.06'")]
PythonVersion = Annotated[str, Field(pattern=r"^3\.\d+$")]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d$")]
# One path component and one image tag: a version, framework or base with a slash would escape its folder.
ImageVersion = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120)]


class RegistryBase(Frozen):
    """The minimal system in a registry."""

    image: str
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    verified: bool  # whether a registry has been seen to answer with this digest

    @property
    def pinned(self) -> str:
        """`name@sha256:...`, the argument of `FROM`."""
        return f"{self.image.partition(':')[0]}@{self.digest}"


class Suite(Frozen):
    """One release of Debian."""

    python: PythonVersion
    # Version of its C library, `2.36`: wheels built for a newer one do not load.
    glibc: Annotated[str, Field(pattern=r"^2\.\d+$")]
    source_date_epoch: int  # seconds since 1970, the time of every file in a base built from a mirror
    # Whether the suite has had its last update, so that every package of it has a single version.
    locked: bool = False
    registry: RegistryBase  # the minimal system as a registry has it


class BaseEntry(Frozen):
    """One base: a suite and the Debian packages added to its minimal system."""

    suite: ImageVersion
    packages: tuple[str, ...]


class BaseSpec(Frozen):
    """The Debian system under an image: a suite with the packages that a base adds, and the fields of both."""

    name: str
    suite: str
    python: str
    glibc: str
    packages: tuple[str, ...]
    source_date_epoch: int
    registry: RegistryBase
    locked: bool = False

    @property
    def reference(self) -> str:
        """The base's tag, derived from what it is made of, so that a changed list of packages is another base."""
        # The default of a field that was added later is left out of the key, so that existing tags stay valid.
        left_out: dict[str, Any] = {"name": True, "registry": {"verified": True}, "locked": not self.locked}
        key = hashlib.sha256(self.model_dump_json(exclude=left_out).encode()).hexdigest()
        return f"dlscale/base:{self.name}-{key[:12]}"


class Cuda(Frozen):
    """One CUDA release: the oldest driver that its libraries run on."""

    minimum_driver: DriverVersion


class Horovod(Frozen):
    """The variant of one framework's image with Horovod."""

    base: str | None = None  # set if it needs more than the common base
    build_requirements: tuple[Pin, ...] = ()  # needed by its build only: CUDA's compiler, for an image with NCCL
    wheels_mib: Annotated[int, Field(gt=0)]
    size_mib: Annotated[int, Field(gt=0)]


class HorovodBuild(Frozen):
    """How Horovod is added to a framework's image."""

    version: ImageVersion
    requirements: Annotated[tuple[Pin, ...], Field(min_length=1)]
    base: str
    build_base: str


class Container(Frozen):
    """A vendor's finished image, used unmodified."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[a-z0-9./_-]+:[A-Za-z0-9._-]+$")]  # `registry/name:tag`
    # Set if known beforehand; otherwise only the lock has it, once a registry has answered.
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    python: PythonVersion  # version of the Python inside, `3.6`
    brings: tuple[Brought, ...] = ()  # what it has in addition to the framework


class Entry(Frozen):
    """One image; the fields are those of `spec.ImageSpec`.

    `size_mib` is measured when it is first built. Its software is wheels on a base (`requirements`), Debian packages of a base whose suite is locked, or a vendor's `container`.
    """

    version: ImageVersion
    device: Device
    base: str = "bookworm"
    container: Container | None = None
    cuda: str | None = None
    compute_capabilities: tuple[Capability, ...] = ()
    ptx: bool = False
    requires_python: PythonRange | None = None
    requirements: tuple[Pin, ...] = ()
    extra_index: str | None = None
    library_path: tuple[str, ...] = ()
    wheels_mib: Annotated[int, Field(ge=0)] = 0
    size_mib: Annotated[int, Field(gt=0)] | None = None
    horovod: Horovod | None = None
    strategies: tuple[StrategyName, ...] | None = None

    @property
    def kind(self) -> Kind:
        """The form of the image's software."""
        if self.container:
            return "container"
        return "wheels" if self.requirements else "debian"

    @model_validator(mode="after")
    def _has_gpu_facts(self) -> Entry:
        if (self.device == "gpu") != bool(self.cuda and self.compute_capabilities):
            raise ValueError("a gpu image, and no other, has both keys 'cuda' and 'compute_capabilities'")
        return self

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Entry:
        of_wheels = bool(self.requirements)
        if (
            of_wheels != bool(self.requires_python)
            or (not of_wheels and self.wheels_mib)
            or (self.container and of_wheels)
        ):
            raise ValueError(
                "an image of wheels, and no other, has the keys 'requirements' and 'requires_python', and can have 'wheels_mib'"
            )
        return self


class VersionsFile(Frozen):
    """The whole file: Debian's suites, the bases made from them, CUDA releases by version, Horovod, and images by framework."""

    suites: Annotated[dict[ImageVersion, Suite], Field(min_length=1)]
    bases: Annotated[dict[ImageVersion, BaseEntry], Field(min_length=1)]
    cuda: dict[str, Cuda]
    horovod: HorovodBuild
    images: Annotated[dict[ImageVersion, tuple[Entry, ...]], Field(min_length=1)]

    def base(self, name: str) -> BaseSpec:
        """Return a base of this file with the facts of its suite."""
        entry = self.bases[name]
        return BaseSpec(name=name, **entry.model_dump(), **self.suites[entry.suite].model_dump())

    @model_validator(mode="after")
    def _is_consistent(self) -> VersionsFile:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield contradictions within the file."""
        for name, entry in self.bases.items():
            if entry.suite not in self.suites:
                yield f"bases.{name} is of suite {entry.suite}, which 'suites' does not list"
        own = (image.horovod.base for entries in self.images.values() for image in entries if image.horovod)
        for name in filter(None, (self.horovod.base, self.horovod.build_base, *own)):
            if name not in self.bases:
                yield f"horovod is built on base {name}, which 'bases' does not list"
        for framework, entries in self.images.items():
            seen = set()
            for image in entries:
                if image.version in seen:
                    yield f"images.{framework} has version {image.version} twice"
                seen.add(image.version)
                yield from (f"images.{framework} {image.version} {problem}" for problem in self._problems_of(image))

    def _problems_of(self, image: Entry) -> Iterator[str]:
        if image.cuda and image.cuda not in self.cuda:
            yield f"names CUDA {image.cuda}, which 'cuda' does not list"
        if image.base not in self.bases:
            yield f"stands on base {image.base}, which 'bases' does not list"
        base = self.base(image.base)
        if image.kind == "debian" and not base.locked:
            yield f"is Debian packages of {base.suite}, which is not locked"
        if image.requires_python and not SpecifierSet(image.requires_python).contains(base.python):
            yield f"excludes the base's own Python {base.python}"
        if image.horovod and image.kind != "wheels":
            yield "has Horovod, which is added to images of wheels only"
