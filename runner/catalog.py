"""Which images there are, and which of them can run on given GPUs. Reads images/versions.yaml; starts, pulls and builds nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from packaging.version import Version

from runner import yamlfile
from runner.errors import RequestError, nearest
from runner.images.versions import BaseSpec, Device, Entry, Frozen, Horovod, Kind, VersionsFile
from runner.nvml import Gpu
from runner.request import StrategyName

IMAGES: Final = Path("images")
Extension = Literal["horovod"]
_LOCKS: Final[dict[Kind, str]] = {"wheels": "requirements", "debian": "packages", "container": "container"}


class ImageSpec(Frozen):
    """One version of one framework, as an image.

    Attributes:
        reference: image name and tag, `dlscale/mxnet:1.9.1`.
        kind: what its software comes as: wheels on a base, a base's Debian packages, or a vendor's container.
        base: the system below it; None where a vendor's container is.
        container: the vendor's container, `registry/name:tag`.
        python: version of the Python inside, `3.11`.
        requires_python: Pythons of a host that can install the lock.
        compute_capabilities: those the libraries hold machine code for, rising.
        ptx: whether they hold PTX of the newest of these too.
        cuda: CUDA release of the libraries.
        minimum_driver: oldest driver that this CUDA release runs on.
        requirements: the pinned inputs of the lock.
        extra_index: a second package index, asked only for what the machine's own sources do not have.
        library_path: folders below site-packages/nvidia whose libraries the framework needs and can't find by itself.
        wheels_mib: size of its wheels.
        size_mib: size of the built image.
        directory: where its Dockerfile and its lock are.
        strategies: those that it can train with; None for all that its framework has.
        extension: what was added to the framework's plain image; None for a plain image.
        build_requirements: packages of the lock that only the build of an extension needs.
        parent: the plain image that an extension is added to.
        build_base: the base on which an extension is compiled.
    """

    framework: str
    version: str
    reference: str
    device: Device
    kind: Kind
    base: BaseSpec | None
    container: str | None
    python: str
    requires_python: str
    compute_capabilities: tuple[str, ...]
    ptx: bool
    cuda: str | None
    minimum_driver: str | None
    requirements: tuple[str, ...]
    extra_index: str | None
    library_path: tuple[str, ...]
    wheels_mib: int
    size_mib: int
    directory: Path
    extension: Extension | None = None
    strategies: tuple[StrategyName, ...] | None = None
    extension_version: str | None = None
    build_requirements: tuple[str, ...] = ()
    parent: ImageSpec | None = None
    build_base: BaseSpec | None = None

    @property
    def name(self) -> str:
        """As a sentence calls it: `mxnet 1.9.1`, `mxnet 1.9.1 with horovod 0.28.1`."""
        plain = f"{self.framework} {self.version}"
        return f"{plain} with {self.extension} {self.extension_version}" if self.extension else plain

    @property
    def tag(self) -> str:
        """What follows the colon of its reference."""
        return self.reference.partition(":")[2]

    @property
    def lock_path(self) -> Path:
        """What names every piece of its software: hashed requirements, Debian packages, or the vendor's container."""
        return self.directory / f"{_LOCKS[self.kind]}.lock"

    @property
    def dockerfile(self) -> Path:
        """The rendered Dockerfile."""
        return self.directory / "Dockerfile"

    @property
    def sdist(self) -> str | None:
        """The one package that is compiled from its source; all others are wheels."""
        return self.extension

    @property
    def patches(self) -> tuple[Path, ...]:
        """What this source needs: in every image, then with this framework."""
        if self.extension is None:
            return ()
        folder = self.directory.parents[2] / "templates" / self.extension
        return tuple(path for name in ("common", self.framework) if (path := folder / f"{name}.patch").exists())

    @property
    def needs_container(self) -> str | None:
        """Why the image's lock can't be installed into an environment outside of a container; None if it can."""
        if self.extension:
            return f"{self.name} is compiled when its image is built"
        if self.kind == "container":
            return f"{self.name} is a container of its vendor"
        if self.kind == "debian":
            return f"{self.name} is packages of Debian, which are installed in its image"
        if self.library_path:
            return f"{self.name} finds its CUDA libraries only inside its image"
        return None

    @property
    def lock_sha256(self) -> str:
        """Names the exact software inside, in records and labels.

        Raises:
            RequestError: the lock is not there.
        """
        try:
            return hashlib.sha256(self.lock_path.read_bytes()).hexdigest()
        except OSError as error:
            raise RequestError(
                f"{self.lock_path}: can't be read ({error.strerror}); restore it from the repository or run `dlscale images lock`"
            ) from error

    @property
    def build_mib(self) -> int:
        """Disk that a build takes at its peak.

        The engine holds the wheels twice (the context it received, the builder's layer) and what they install twice (builder, image);
        a vendor's container is there once, below a thin layer.
        """
        return self.size_mib if self.kind == "container" else 2 * self.wheels_mib + 2 * self.size_mib

    def supports(self, capability: str) -> bool:
        """Whether a GPU of this compute capability can run the image's code.

        Machine code runs on the same major version and an equal or higher minor one; PTX is compiled by the driver for anything newer
        (CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility").
        """
        wanted = _capability(capability)
        held = [_capability(text) for text in self.compute_capabilities]
        machine_code = any(major == wanted[0] and minor <= wanted[1] for major, minor in held)
        return machine_code or (self.ptx and bool(held) and max(held) <= wanted)

    def runs_with(self, driver: str) -> bool:
        """Whether a driver is new enough for the image's CUDA release."""
        return self.minimum_driver is None or Version(_digits(driver)) >= Version(self.minimum_driver)


class Catalog(Frozen):
    """Every image of the suite.

    Attributes:
        root: the checkout.
        bases: the systems below them.
        images: the plain ones, in the order of versions.yaml.
        extended: those with something added, which are only used when it is asked for.
    """

    root: Path
    bases: tuple[BaseSpec, ...]
    images: tuple[ImageSpec, ...]
    extended: tuple[ImageSpec, ...]

    @property
    def everything(self) -> tuple[ImageSpec, ...]:
        """Plain and extended images, each extended one right after its parent."""
        return tuple(
            image
            for plain in self.images
            for image in (plain, *(other for other in self.extended if other.parent == plain))
        )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(sorted({image.framework for image in self.images}))

    def of(self, framework: str, device: Device | None = None) -> tuple[ImageSpec, ...]:
        """A framework's images for a device (for any if None), newest first.

        Raises:
            RequestError: unknown framework.
        """
        if framework not in self.frameworks:
            raise RequestError(f"unknown FRAMEWORK {framework!r}; known: {nearest(framework, self.frameworks)}")
        found = [i for i in self.images if i.framework == framework and device in (None, i.device)]
        return tuple(sorted(found, key=lambda image: _release(image.version), reverse=True))

    def find(
        self,
        framework: str,
        version: str | None,
        device: Device,
        *,
        gpus: Sequence[Gpu] = (),
        driver: str | None = None,
    ) -> ImageSpec:
        """The image that a request means.

        Args:
            framework: its name.
            version: its version; the newest for the device when None, or the newest that fits where GPUs are given.
            device: what it is to run on.
            gpus: the GPUs present, to choose a default by.
            driver: their driver's version.

        Raises:
            RequestError: unknown framework or version, or no such image for the device.
        """
        offered = self.of(framework, device)
        if version is None:
            if not offered:
                other = ", ".join(sorted({i.framework for i in self.images if i.device == device})) or "none"
                raise RequestError(f"{framework} has no image for DEVICE={device}; frameworks that do: {other}")
            return next((image for image in offered if misfit(image, gpus, driver) is None), offered[0])
        for image in offered:
            if image.version == version:
                return image
        everywhere = {image.version: image.device for image in self.of(framework)}
        if version in everywhere:
            versions = ", ".join(image.version for image in offered) or "none"
            raise RequestError(
                f"{framework} {version} is built for DEVICE={everywhere[version]}, not {device}; versions for {device}: {versions}"
            )
        raise RequestError(f"unknown VERSION {version!r} of {framework}; known: {nearest(version, everywhere)}")

    def with_horovod(self, image: ImageSpec) -> ImageSpec:
        """The image that is `image` with Horovod in it.

        Raises:
            RequestError: there is none; the sentence names the versions that have one.
        """
        for other in self.extended:
            if other.parent == image:
                return other
        own = ", ".join(i.version for i in self.extended if i.framework == image.framework)
        others = ", ".join(f"{i.framework} {i.version}" for i in self.extended)
        step = f"versions of {image.framework} that have: {own}" if own else f"these have: {others or 'none'}"
        raise RequestError(f"{image.name} has no image with Horovod; {step}")

    def smallest(self, device: Device) -> ImageSpec:
        """The image that is quickest to have: the default where nothing is asked for.

        Raises:
            RequestError: there is no image for the device.
        """
        offered = [image for image in self.images if image.device == device]
        if not offered:
            raise RequestError(f"{self.root / IMAGES / 'versions.yaml'}: has no image for DEVICE={device}; add one")
        return min(offered, key=lambda image: image.size_mib)

    def check_fit(self, image: ImageSpec, gpus: Sequence[Gpu], driver: str | None) -> None:
        """Hold an image's architectures and minimum driver against the GPUs present.

        Raises:
            RequestError: it can't run there; the sentence names what can.
        """
        problem = misfit(image, gpus, driver)
        if problem is None:
            return
        fitting = [
            other for other in self.images if other.device == image.device and misfit(other, gpus, driver) is None
        ]
        own = [other.version for other in fitting if other.framework == image.framework]
        if own:
            raise RequestError(f"{problem}; versions that do: {', '.join(own)}")
        others = ", ".join(other.name for other in fitting)
        step = (
            f"none of {image.framework} does, these do: {others}"
            if others
            else "no image of this suite does; ask for DEVICE=cpu"
        )
        raise RequestError(f"{problem}; {step}")


def misfit(image: ImageSpec, gpus: Sequence[Gpu], driver: str | None) -> str | None:
    """Why an image can't run on these GPUs, as half a sentence; None if it can. A CPU image runs anywhere."""
    if image.device == "cpu":
        return None
    lacking = sorted(
        {gpu.compute_capability for gpu in gpus if not image.supports(gpu.compute_capability)}, key=_capability
    )
    if lacking:
        return f"{image.name} has no code for compute capability {', '.join(lacking)}"
    if driver is not None and not image.runs_with(driver):
        return f"{image.name} does not run on driver {driver} (CUDA {image.cuda} needs {image.minimum_driver} or newer)"
    return None


def load_images(root: Path) -> Catalog:
    """Read `images/versions.yaml` of the checkout at `root`.

    Raises:
        RequestError: the file is absent or wrong; the sentence names file, line and key.
    """
    file = yamlfile.load(root / IMAGES / "versions.yaml", VersionsFile)
    pairs = [
        (_plain(file, root, framework, entry), entry) for framework, entries in file.images.items() for entry in entries
    ]
    return Catalog(
        root=root,
        bases=tuple(file.base(name) for name in file.bases),
        images=tuple(image for image, _ in pairs),
        extended=tuple(_with_horovod(file, image, entry.horovod) for image, entry in pairs if entry.horovod),
    )


def _plain(file: VersionsFile, root: Path, framework: str, entry: Entry) -> ImageSpec:
    base = None if entry.container else file.base(entry.base)
    python = entry.container.python if entry.container else file.base(entry.base).python
    return ImageSpec(
        framework=framework,
        version=entry.version,
        reference=f"dlscale/{framework}:{entry.version}",
        device=entry.device,
        kind=entry.kind,
        base=base,
        container=entry.container.image if entry.container else None,
        python=python,
        requires_python=entry.requires_python or f"=={python}.*",
        compute_capabilities=tuple(sorted(entry.compute_capabilities, key=_capability)),
        ptx=entry.ptx,
        cuda=entry.cuda,
        minimum_driver=file.cuda[entry.cuda].minimum_driver if entry.cuda else None,
        requirements=entry.requirements,
        extra_index=entry.extra_index,
        library_path=entry.library_path,
        wheels_mib=entry.wheels_mib,
        size_mib=entry.size_mib,
        strategies=entry.strategies,
        directory=root / IMAGES / framework / entry.version,
    )


def _with_horovod(file: VersionsFile, plain: ImageSpec, entry: Horovod) -> ImageSpec:
    base = file.base(file.horovod.base)
    return plain.model_copy(
        update={
            "reference": f"{plain.reference}-horovod",
            "base": base,
            "requires_python": f"=={base.python}.*",
            "requirements": (*file.horovod.requirements, *entry.build_requirements),
            "build_requirements": tuple(requirement.partition("==")[0] for requirement in entry.build_requirements),
            "extra_index": None,
            "wheels_mib": entry.wheels_mib,
            "size_mib": entry.size_mib,
            "directory": plain.directory / "horovod",
            "extension": "horovod",
            "extension_version": file.horovod.version,
            "parent": plain,
            "build_base": file.base(file.horovod.build_base),
        }
    )


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def _release(version: str) -> Version:
    """The framework's own version: `1.9.1-cu112` is a build of 1.9.1."""
    return Version(version.partition("-")[0])


def _digits(driver: str) -> str:
    """The part of a driver's version that orders it; vendors append words."""
    found = re.match(r"\d+(\.\d+)*", driver)
    return found.group() if found else "0"
