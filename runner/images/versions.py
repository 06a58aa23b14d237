"""The format of images/versions.yaml, as types that refuse what no image could be built from."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Device = Literal["cpu", "gpu"]


class Frozen(BaseModel):
    """A value: never changed, and without a key that nobody reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _pinned(text: str) -> str:
    try:
        pins = [specifier.operator for specifier in Requirement(text).specifier]
    except InvalidRequirement as error:
        raise ValueError("not a requirement like 'numpy==1.23.5'") from error
    if pins != ["=="]:
        raise ValueError("a requirement is pinned to one version: 'numpy==1.23.5'")
    return text


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError("not a range of Python versions like '>=3.10,<3.13'") from error
    return text


def _driver(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        raise ValueError("not a driver version like '580.65.06'") from error
    return text


Pin = Annotated[str, AfterValidator(_pinned)]
PythonRange = Annotated[str, AfterValidator(_specifier)]
DriverVersion = Annotated[str, AfterValidator(_driver)]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d$")]
# One path component and one image tag: a version with a slash would leave its folder.
ImageVersion = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class RegistryBase(Frozen):
    """Where a registry keeps the base.

    Attributes:
        image: `name:tag`, for the reader.
        digest: what is pulled.
        verified: whether a registry has been seen to answer with this digest.
    """

    image: str
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    verified: bool

    @property
    def pinned(self) -> str:
        """`name@sha256:...`, what `FROM` takes."""
        return f"{self.image.partition(':')[0]}@{self.digest}"


class BaseSpec(Frozen):
    """The Debian system under every image.

    Attributes:
        suite: Debian's code name.
        python: version of Debian's own Python in that suite, `3.11`.
        glibc: version of its C library, `2.36`: wheels built for a newer one do not load.
        packages: Debian packages beside the minimal system.
        source_date_epoch: seconds since 1970 that stand for every file time in a base built from a mirror.
        registry: the same system as a registry has it.
    """

    suite: str
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    glibc: Annotated[str, Field(pattern=r"^2\.\d+$")]
    packages: tuple[str, ...]
    source_date_epoch: int
    registry: RegistryBase

    @property
    def reference(self) -> str:
        """The base's tag: named after what it is made from, so that a changed list of packages is another base."""
        key = hashlib.sha256(self.model_dump_json(exclude={"registry": {"verified"}}).encode()).hexdigest()
        return f"dlscale/base:{self.suite}-{key[:12]}"


class Cuda(Frozen):
    """One CUDA release: the oldest driver that its libraries run on."""

    minimum_driver: DriverVersion


class Entry(Frozen):
    """One image; the fields are those of `catalog.ImageSpec`."""

    version: ImageVersion
    device: Device
    cuda: str | None = None
    compute_capabilities: tuple[Capability, ...] = ()
    ptx: bool = False
    requires_python: PythonRange
    requirements: Annotated[tuple[Pin, ...], Field(min_length=1)]
    extra_index: str | None = None
    library_path: tuple[str, ...] = ()
    wheels_mib: Annotated[int, Field(gt=0)]
    size_mib: Annotated[int, Field(gt=0)]

    @model_validator(mode="after")
    def _gpu_facts(self) -> Entry:
        if (self.device == "gpu") != bool(self.cuda and self.compute_capabilities):
            raise ValueError("a gpu image, and no other, has both keys 'cuda' and 'compute_capabilities'")
        return self


class VersionsFile(Frozen):
    """The whole file: the base, CUDA releases by version, and images by framework."""

    base: BaseSpec
    cuda: dict[str, Cuda]
    images: Annotated[dict[str, tuple[Entry, ...]], Field(min_length=1)]

    @model_validator(mode="after")
    def _agree(self) -> VersionsFile:
        for framework, entries in self.images.items():
            versions = [entry.version for entry in entries]
            for version in versions:
                if versions.count(version) > 1:
                    raise ValueError(f"images.{framework} has version {version} twice")
            for entry in entries:
                if entry.cuda and entry.cuda not in self.cuda:
                    raise ValueError(
                        f"images.{framework} {entry.version} names CUDA {entry.cuda}, which 'cuda' does not list"
                    )
                if not SpecifierSet(entry.requires_python).contains(self.base.python):
                    raise ValueError(
                        f"images.{framework} {entry.version} excludes the base's own Python {self.base.python}"
                    )
        return self
