"""The wheelhouse: the wheels of a lock, fetched on the host and checked by hash, so that a build needs no network.

Proxies, certificates and mirrors are the host's configuration, which its pip uses. The lock's markers are evaluated for the image's Python,
not for the one that runs this.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from runner.core.cache import free_mib
from runner.core.errors import RequestError
from runner.engines.environment import pip
from runner.images.spec import ImageSpec
from runner.images.versions import BaseSpec

# Concurrent downloads: enough to hide the start-up of pip.
_DOWNLOADS: Final = 4
_OLDEST_GLIBC: Final = 5  # manylinux_2_5 is manylinux1 (PEP 600)
_LEGACY_PLATFORMS: Final = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")


@dataclass(frozen=True)
class Pin:
    """One package of a lock."""

    name: str
    version: str
    marker: Marker | None
    hashes: frozenset[str]  # SHA-256 of every acceptable file

    def line(self) -> str:
        """Return the line of a requirements file, without the marker; `===` does not accept a local version such as 2.13.0+cpu for 2.13.0."""
        return " ".join(
            (f"{self.name}==={self.version}", *(f"--hash=sha256:{digest}" for digest in sorted(self.hashes)))
        )


def fetch(image: ImageSpec, *, cache: Path, report: Callable[[str], None]) -> tuple[Path, ...]:
    """Return all wheels of an image's lock, complete and checked, in the cache's folder `wheels`; none if it is not made of wheels.

    Raises RequestError if there is no lock, too little disk, or no package source of this machine has a wheel.
    """
    if image.base is None or image.kind != "wheels":
        return ()
    wheelhouse = cache / "wheels"
    target = Target.of(image.base)
    try:
        wheelhouse.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(
            f"{wheelhouse}: {error.strerror}; set DLSCALE_CACHE to a directory that can be written"
        ) from error
    _ = image.lock_sha256  # raises if there is no lock
    pins = target.pins(image.lock_path.read_text(encoding="utf-8"))
    found = {pin: _find(pin, image, wheelhouse, target) for pin in pins}
    missing = [pin for pin, wheel in found.items() if wheel is None]
    if missing:
        free = free_mib(wheelhouse)
        if free < image.wheels_mib:
            raise RequestError(
                f"{wheelhouse} has {free} MiB free, the wheels of {image.name} need {image.wheels_mib}; free some or set DLSCALE_CACHE"
            )

        def download(number: int, pin: Pin) -> Path:
            report(f"fetching {pin.name} {pin.version} ({number} of {len(missing)})")
            return _download(pin, image, wheelhouse, target)

        with ThreadPoolExecutor(_DOWNLOADS) as pool:
            found.update(zip(missing, pool.map(download, count(1), missing), strict=True))
    return tuple(wheel for wheel in found.values() if wheel)


@dataclass(frozen=True)
class Target:
    """The system inside an image, as wheels and markers see it: CPython on x86-64 Linux with glibc."""

    python: str
    platforms: tuple[str, ...]

    @classmethod
    def of(cls, base: BaseSpec) -> Target:
        """Return the system of a base."""
        newest = int(base.glibc.partition(".")[2])
        steps = tuple(f"manylinux_2_{minor}_x86_64" for minor in range(newest, _OLDEST_GLIBC - 1, -1))
        return cls(base.python, (*steps, *_LEGACY_PLATFORMS))

    def pins(self, lock: str) -> tuple[Pin, ...]:
        """Return the packages of a lock's text that are installed here."""
        environment = {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": "x86_64",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }
        return tuple(pin for pin in read_lock(lock) if pin.marker is None or pin.marker.evaluate(environment))

    def tags(self) -> frozenset[Tag]:
        """Return the tags of wheels that can be installed here."""
        major, _, minor = self.python.partition(".")
        version, abi = (int(major), int(minor)), f"cp{major}{minor}"
        return frozenset(
            (
                *cpython_tags(version, abis=[abi], platforms=self.platforms),
                *compatible_tags(version, f"cp{major}{minor}", self.platforms),
            )
        )


def read_lock(text: str) -> Iterator[Pin]:
    """Parse a lock's text: `name==version ; marker --hash=sha256:...`, with lines continued by a backslash."""
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition(" #")[0].strip()
        if not words or words.startswith("#"):
            continue
        requirement = Requirement(words.partition(" --hash=")[0])
        (pin,) = requirement.specifier
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", words))
        yield Pin(canonicalize_name(requirement.name), pin.version, requirement.marker, hashes)


def _find(pin: Pin, image: ImageSpec, wheelhouse: Path, target: Target) -> Path | None:
    """Return a package's file if the wheelhouse has it; damaged files are removed."""
    for path in _files(pin, image, wheelhouse, target):
        if file_sha256(path) in pin.hashes:
            return path
        path.unlink()
    return None


def _files(pin: Pin, image: ImageSpec, wheelhouse: Path, target: Target) -> Iterator[Path]:
    """Yield files of the wheelhouse whose names match the package and the target."""
    if pin.name == image.sdist:
        yield from wheelhouse.glob(f"{pin.name}-{pin.version}.tar.gz")
        return
    tags = target.tags()
    for wheel in sorted(wheelhouse.glob("*.whl")):
        try:
            name, version, _, wheel_tags = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            continue
        if (name, str(version)) == (pin.name, pin.version) and not tags.isdisjoint(wheel_tags):
            yield wheel


def _target_options(target: Target) -> Iterator[str]:
    """Yield options that make pip take wheels for another system than its own."""
    yield from ("--only-binary", ":all:", "--python-version", target.python, "--implementation", "cp")
    for abi in (f"cp{target.python.replace('.', '')}", "abi3", "none"):
        yield from ("--abi", abi)
    for platform in target.platforms:
        yield from ("--platform", platform)


def _download(pin: Pin, image: ImageSpec, wheelhouse: Path, target: Target) -> Path:
    # After checking its hash, pip unpacks a source distribution to read its metadata, with the runner's own locked setuptools.
    source = ("--no-binary", pin.name, "--no-build-isolation")
    with tempfile.TemporaryDirectory(dir=wheelhouse, prefix=".fetching-") as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text(pin.line() + "\n", encoding="utf-8")
        options = [
            *("--no-cache-dir", "--no-deps"),
            *(source if pin.name == image.sdist else _target_options(target)),
            *("--dest", folder, "-r", str(requirements)),
        ]
        about = f"{image.name} can't be built"
        pip(sys.executable, "download", options, extra_index=image.extra_index, about=about, report=lambda _: None)
        (fetched,) = (path for path in Path(folder).iterdir() if path != requirements)
        return fetched.replace(wheelhouse / fetched.name)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def size_mib(wheels: tuple[Path, ...]) -> int:
    """Return the size of the wheels in MiB, rounded up."""
    return -(-sum(wheel.stat().st_size for wheel in wheels) // 2**20)
