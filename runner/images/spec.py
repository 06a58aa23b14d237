"""`ImageSpec`: one version of one framework as an image, with its requirements, its files and the hardware that it runs on."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, Literal

from packaging.version import Version

from runner.core.container_spec import Mount
from runner.core.frozen import Frozen, reading
from runner.core.request import StrategyName
from runner.images.versions import BaseSpec, Brought, Device, Kind

Extension = Literal["horovod"]
_LOCKS: Final[dict[Kind, str]] = {"wheels": "requirements", "debian": "packages", "container": "container"}


class Software(Frozen):
    """What the suite's programs run in: an image of the suite, a user's image, or software of this machine."""

    framework: str
    device: Device
    mounts: tuple[Mount, ...] = ()  # folders and files of the host, mounted read-only
    # Strategies that it can train with; None for all of its framework.
    strategies: tuple[StrategyName, ...] | None = None

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """The image's prefix to every command; empty for the suite's own images."""
        return ()

    @property
    def needs_container(self) -> str | None:
        """Why it can't run without a container engine; None if it can."""
        return None


class ImageSpec(Software):
    """One version of one framework, as an image."""

    version: str
    reference: str
    kind: Kind  # form of its software: wheels on a base, a base's Debian packages, or a vendor's container
    base: BaseSpec | None
    container: str | None  # the vendor's, `registry/name:tag`
    digest: str | None  # the container's, if versions.yaml has it
    brings: tuple[Brought, ...]  # what the container has in addition to the framework
    python: str
    requires_python: str  # Pythons of a host that can install the lock
    compute_capabilities: tuple[str, ...]
    ptx: bool  # whether there is also PTX of the newest of these
    cuda: str | None
    minimum_driver: str | None  # oldest driver for this CUDA release
    requirements: tuple[str, ...]
    extra_index: str | None  # a second package index, used only for packages that the machine's own sources lack
    # Folders below site-packages/nvidia with libraries that the framework needs and does not find on its own.
    library_path: tuple[str, ...]
    wheels_mib: int
    size_mib: int
    measured: bool = True  # whether `size_mib` was measured; otherwise it is that of the largest similar image
    directory: Path
    extension: Extension | None = None  # what was added to the framework's plain image; None for the plain image
    extension_version: str | None = None
    build_requirements: tuple[str, ...] = ()  # packages of the lock that only the build of an extension needs
    parent: ImageSpec | None = None
    build_base: BaseSpec | None = None

    @property
    def name(self) -> str:
        """Its name in a sentence: `mxnet 1.9.1`, `mxnet 1.9.1 with horovod 0.28.1`."""
        plain = f"{self.framework} {self.version}"
        return f"{plain} with {self.extension} {self.extension_version}" if self.extension else plain

    @property
    def tag(self) -> str:
        """The part of its reference after the colon."""
        return self.reference.partition(":")[2]

    @property
    def lock_path(self) -> Path:
        """The file that lists all of its software: hashed requirements, Debian packages, or the vendor's container."""
        return self.directory / f"{_LOCKS[self.kind]}.lock"

    @property
    def dockerfile(self) -> Path:
        """The rendered Dockerfile."""
        return self.directory / "Dockerfile"

    @property
    def sdist(self) -> str | None:
        """The only package that is compiled from source; all others are wheels."""
        return self.extension

    @property
    def patches(self) -> tuple[Path, ...]:
        """The patches of this source: those for every image, then those for this framework."""
        if self.extension is None:
            return ()
        folder = self.directory.parents[2] / "templates" / self.extension
        return tuple(path for name in ("common", self.framework) if (path := folder / f"{name}.patch").exists())

    @property
    def needs_container(self) -> str | None:
        """Why the image's lock can't be installed outside a container; None if it can."""
        reasons = (
            (self.extension, "is compiled when its image is built"),
            (self.kind == "container", "is a container of its vendor"),
            (self.kind == "debian", "is packages of Debian, which are installed in its image"),
            (self.library_path, "finds its CUDA libraries only inside its image"),
        )
        return next((f"{self.name} {why}" for applies, why in reasons if applies), None)

    @property
    def lock_sha256(self) -> str:
        """Identifies the exact software inside, in records and labels. Raises RequestError if there is no lock."""
        step = f"type `dlscale images lock {self.framework}:{self.tag}` for a new version, or restore it from the repository"
        with reading(self.lock_path, "can't be read", step=step):
            return hashlib.sha256(self.lock_path.read_bytes()).hexdigest()

    @property
    def software(self) -> str:
        """Identifies the software: the digest of its lock."""
        return self.lock_sha256

    @property
    def flags(self) -> tuple[str, ...]:
        """The options by which `bench` finds it again, in addition to FRAMEWORK and, with Horovod, STRATEGY."""
        return (f"--version={self.version}",)

    @property
    def build_mib(self) -> int:
        """Peak disk usage of a build, in MiB.

        The engine holds the wheels twice (received context, builder's layer) and what they install twice (builder, image); it holds a vendor's
        container once, below a thin layer.
        """
        return self.size_mib if self.kind == "container" else 2 * self.wheels_mib + 2 * self.size_mib

    def supports(self, capability: str) -> bool:
        """Whether a GPU of this compute capability can run the image's code.

        Machine code runs on the same major version and an equal or higher minor one; PTX is compiled by the driver for anything newer
        (CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility").
        """
        wanted = capability_number(capability)
        capabilities = [capability_number(text) for text in self.compute_capabilities]
        machine_code = any(major == wanted[0] and minor <= wanted[1] for major, minor in capabilities)
        return machine_code or (self.ptx and bool(capabilities) and max(capabilities) <= wanted)

    def runs_with(self, driver: str) -> bool:
        """Whether a driver is new enough for the image's CUDA release."""
        return self.minimum_driver is None or Version(_digits(driver)) >= Version(self.minimum_driver)


def capability_number(text: str) -> tuple[int, int]:
    """Convert a compute capability to numbers that can be ordered."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def _digits(driver: str) -> str:
    """Return the numeric part of a driver's version, which orders it; vendors append words."""
    found = re.match(r"\d+(\.\d+)*", driver)
    return found.group() if found else "0"
