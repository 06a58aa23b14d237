"""The suite's images, and which of them can run on given GPUs. Reads images/versions.yaml; starts, pulls and builds nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from typing import Final, get_args

from packaging.version import Version

from runner.core import yamlfile
from runner.core.errors import RequestError, unknown
from runner.core.frozen import Frozen
from runner.core.node import Gpu
from runner.images.spec import ImageSpec, capability_number
from runner.images.versions import BaseSpec, Device, Entry, Horovod, VersionsFile

IMAGES: Final = Path("images")


class Catalog(Frozen):
    """Every image of the suite."""

    root: Path
    bases: tuple[BaseSpec, ...]
    images: tuple[ImageSpec, ...]  # the plain ones, in the order of versions.yaml
    extended: tuple[ImageSpec, ...]  # extensions of plain images, used only if requested

    @property
    def all_images(self) -> tuple[ImageSpec, ...]:
        """Plain and extended images, each extended one right after its parent."""
        return tuple(
            image
            for plain in self.images
            for image in (plain, *(other for other in self.extended if other.parent == plain))
        )

    @property
    def newest(self) -> tuple[ImageSpec, ...]:
        """The newest image of each framework for each device, and what extends it, in the order of versions.yaml."""
        first = [self.of(*pair)[:1] for pair in product(self.frameworks, get_args(Device))]
        plain = list(chain.from_iterable(first))
        return tuple(image for image in self.all_images if (image.parent or image) in plain)

    def base(self, name: str) -> BaseSpec:
        """Return the base of this name in images/versions.yaml."""
        return next(base for base in self.bases if base.name == name)

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Names of the frameworks, sorted."""
        return tuple(sorted({image.framework for image in self.images}))

    def of(self, framework: str, device: Device | None = None) -> tuple[ImageSpec, ...]:
        """Return a framework's images for a device (any if None), newest first. Raises RequestError for an unknown framework."""
        if framework not in self.frameworks:
            raise RequestError(unknown("FRAMEWORK", framework, self.frameworks))
        found = [i for i in self.images if i.framework == framework and device in (None, i.device)]
        return tuple(sorted(found, key=lambda image: release(image.version), reverse=True))

    def find(
        self,
        framework: str,
        version: str | None,
        device: Device,
        *,
        gpus: Sequence[Gpu] = (),
        driver: str | None = None,
        horovod: bool = False,
    ) -> ImageSpec:
        """Return the image that a request means.

        `version` may be a prefix that only builds of one release have; None is the newest for the device. Of several images, one that fits the GPUs
        is preferred, then, if requested, one with Horovod, then the newest; none has to fit.
        Raises RequestError for an unknown framework, an unknown or ambiguous version, or if there is no such image for the device.
        """
        offered = self.of(framework, device)
        if version is None and not offered:
            other = ", ".join(sorted({i.framework for i in self.images if i.device == device})) or "none"
            raise RequestError(f"{framework} has no image for DEVICE={device}; frameworks that do: {other}")
        if candidates := matching(version, offered) if version is not None else offered:
            if version is not None and len({release(image.version) for image in candidates}) > 1:
                raise RequestError(
                    f"VERSION={version} of {framework} can be {' or '.join(i.version for i in candidates)}; ask for one"
                )
            with_horovod = [image for image in candidates if horovod and self._find_horovod(image)]
            candidates = (*with_horovod, *(image for image in candidates if image not in with_horovod))
            return next((image for image in candidates if misfit(image, gpus, driver) is None), candidates[0])
        versions = [image.version for image in offered]
        if elsewhere := matching(version or "", self.of(framework)):
            raise RequestError(
                f"{elsewhere[0].name} is built for DEVICE={elsewhere[0].device}, not {device}; versions for {device}: "
                f"{', '.join(versions) or 'none'}"
            )
        known = versions or [image.version for image in self.of(framework)]
        raise RequestError(unknown("VERSION", version or "", known, of=framework))

    def with_horovod(self, image: ImageSpec) -> ImageSpec:
        """Return `image` with Horovod in it, which a vendor's container may have already. Raises RequestError if there is no such image."""
        if found := self._find_horovod(image):
            return found
        able = [other for other in self.images if self._find_horovod(other)]
        own = ", ".join(i.version for i in able if i.framework == image.framework)
        others = ", ".join(f"{i.framework} {i.version}" for i in able)
        step = f"versions of {image.framework} that have: {own}" if own else f"these have: {others or 'none'}"
        raise RequestError(f"{image.name} has no image with Horovod; {step}")

    def _find_horovod(self, image: ImageSpec) -> ImageSpec | None:
        if "horovod" in image.brings:
            return image
        return next((other for other in self.extended if other.parent == image), None)

    def check_fit(self, image: ImageSpec, gpus: Sequence[Gpu], driver: str | None) -> None:
        """Check an image's architectures and minimum driver against the GPUs present. Raises RequestError, naming those that fit."""
        problem = misfit(image, gpus, driver)
        if problem is None:
            return
        fitting = [i for i in self.images if i.device == image.device and misfit(i, gpus, driver) is None]
        if own := [other.version for other in fitting if other.framework == image.framework]:
            raise RequestError(f"{problem}; versions that do: {', '.join(own)}")
        others = ", ".join(other.name for other in fitting)
        step = f"none of {image.framework} does, these do: {others}"
        raise RequestError(f"{problem}; {step if others else 'no image of this suite does; ask for DEVICE=cpu'}")


def matching(version: str, images: Sequence[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Return the image of a version, or all whose versions begin with it: 2.13 matches 2.13.0-cpu, and would match 2.13.1 too."""
    exact = tuple(image for image in images if image.version == version)
    return exact or tuple(image for image in images if re.match(rf"{re.escape(version)}[.-]", image.version))


def misfit(image: ImageSpec, gpus: Sequence[Gpu], driver: str | None) -> str | None:
    """Say why an image can't run on these GPUs, in half a sentence; None if it can. A CPU image runs anywhere."""
    if image.device == "cpu":
        return None
    lacking = sorted(
        {gpu.compute_capability for gpu in gpus if not image.supports(gpu.compute_capability)}, key=capability_number
    )
    if lacking:
        return f"{image.name} has no code for compute capability {', '.join(lacking)}"
    if driver is not None and not image.runs_with(driver):
        return f"{image.name} does not run on driver {driver} (CUDA {image.cuda} needs {image.minimum_driver} or newer)"
    return None


def load_images(root: Path) -> Catalog:
    """Read `images/versions.yaml` of the checkout at `root`. Raises RequestError if it is missing or wrong."""
    file = yamlfile.load(root / IMAGES / "versions.yaml", VersionsFile)
    pairs = [
        (_plain_image(file, root, framework, entry), entry)
        for framework, entries in file.images.items()
        for entry in entries
    ]
    return Catalog(
        root=root,
        bases=tuple(file.base(name) for name in file.bases),
        images=tuple(image for image, _ in pairs),
        extended=tuple(_horovod_image(file, image, entry.horovod) for image, entry in pairs if entry.horovod),
    )


def _plain_image(file: VersionsFile, root: Path, framework: str, entry: Entry) -> ImageSpec:
    base = None if entry.container else file.base(entry.base)
    # Vendors' containers are similar, whatever the framework.
    comparable = chain.from_iterable(file.images.values()) if entry.container else file.images[framework]
    similar = [other for other in comparable if (other.device, other.kind) == (entry.device, entry.kind)]
    python = entry.container.python if entry.container else file.base(entry.base).python
    own = {"base", "container", "horovod", "requires_python", "compute_capabilities", "wheels_mib", "size_mib"}
    return ImageSpec(
        **entry.model_dump(exclude=own),
        framework=framework,
        reference=f"dlscale/{framework}:{entry.version}",
        kind=entry.kind,
        base=base,
        container=entry.container.image if entry.container else None,
        digest=entry.container.digest if entry.container else None,
        brings=entry.container.brings if entry.container else (),
        python=python,
        requires_python=entry.requires_python or f"=={python}.*",
        compute_capabilities=tuple(sorted(entry.compute_capabilities, key=capability_number)),
        minimum_driver=file.cuda[entry.cuda].minimum_driver if entry.cuda else None,
        wheels_mib=entry.wheels_mib or max(other.wheels_mib for other in similar),
        size_mib=entry.size_mib or max((other.size_mib or 0 for other in similar), default=0),
        measured=entry.size_mib is not None,
        directory=root / IMAGES / framework / entry.version,
    )


def _horovod_image(file: VersionsFile, plain: ImageSpec, entry: Horovod) -> ImageSpec:
    base = file.base(entry.base or file.horovod.base)
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


def release(version: str) -> Version:
    """Return the framework's own version: `1.9.1-cu112` is a build of 1.9.1."""
    return Version(version.partition("-")[0])
