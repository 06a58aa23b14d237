"""Software that is not the suite's: an image that is given, and what ENGINE=host finds on this machine. Looked up; never pulled, built, installed or changed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from runner.core.container_spec import HOME
from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.engines import process
from runner.engines.base import EngineRefusedError
from runner.engines.boxes import PASSED
from runner.engines.command import passed
from runner.engines.images import find_image
from runner.engines.process import CommandError
from runner.images.spec import ImageSpec, Software
from runner.images.versions import Device

if TYPE_CHECKING:
    from runner.engines.docker import Client


class FoundImage(Frozen):
    """An image that the engine has."""

    reference: str
    id: str
    digest: str | None = None  # the registry's, with the name there; None for an image that never was in one
    lock_sha256: str | None = None  # of an image that is the suite's after all, or stands on one
    entrypoint: tuple[str, ...] = ()  # what the image puts before every command; vendors set up libraries there


class CustomImage(Software):
    """An image that somebody gave for the suite's own programs, with what the host shows in it.

    Nobody knows what is in it before it runs: not the framework's version, which the program tells by its `env` event, and not the GPUs
    that its libraries have code for, or whether Horovod is there.
    """

    found: FoundImage

    @property
    def reference(self) -> str:
        """Its name in the engine."""
        return self.found.reference

    @property
    def version(self) -> str:
        """Its reference, which no version of the catalog is: `hostroot:1`."""
        return self.found.reference

    @property
    def name(self) -> str:
        """As a sentence calls it: `pytorch hostroot:1`."""
        return f"{self.framework} {self.version}"

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """What it puts before every command."""
        return self.found.entrypoint

    @property
    def needs_container(self) -> str:
        """Why it can't run without a container engine."""
        return f"{self.reference} is an image"

    @property
    def software(self) -> str:
        """Names what runs as exactly as can be: the image, and which folders of the host are shown in it."""
        return " ".join((self.found.id, *(f"{mount.source}:{mount.target}" for mount in self.mounts)))

    @property
    def flags(self) -> tuple[str, ...]:
        """What `bench` needs to find it again beside FRAMEWORK."""
        return (f"--image={self.reference}", *(f"--mount={mount.source}:{mount.target}" for mount in self.mounts))


def look_up(client: Client, reference: str) -> FoundImage:
    """Look an image up; it is never pulled, as what runs under a tag must not change without a word. Raises RequestError."""
    try:
        found = find_image(client, reference)
    except EngineRefusedError as error:
        raise RequestError(f"--image {reference} can't be looked up ({error}); give NAME:TAG") from error
    if found is None:
        raise RequestError(
            f"the engine has no image {reference}; type `docker pull {reference}`, or `dlscale images load` where there is no network"
        )
    return FoundImage(
        reference=reference,
        id=str(found.id),
        digest=next(iter(found.attrs.get("RepoDigests") or ()), None),
        lock_sha256=found.labels.get("dlscale.lock.sha256"),
        entrypoint=tuple((found.attrs.get("Config") or {}).get("Entrypoint") or ()),
    )


DISTRIBUTIONS: Final = {
    "mxnet": r"mxnet(-cu\d+|-native|-mkl)?",
    "pytorch": r"torch",
    "tensorflow": r"tensorflow(-cpu|-gpu|-intel)?",
}
"""Names of the packages that bring a framework; the first of them is what a sentence calls it by."""
_HOROVOD: Final = "horovod"
# Asks for what is installed without importing it: a framework takes seconds to load, and may take a GPU.
_PROBE: Final = """
import importlib.metadata, json, sys
found = [(each.metadata["Name"] or "", each.version) for each in importlib.metadata.distributions()]
print(json.dumps({"path": sys.executable, "prefix": sys.prefix, "version": sys.version.split()[0], "installed": found}))
"""
_PROBE_TIMEOUT_S: Final = 60.0


class HostPython(Frozen):
    """A Python of this machine, as it describes itself."""

    path: str  # the program itself, not a shim in front of it
    prefix: str  # where it and what it has are installed
    version: str
    # Name and version of each distribution, in the order in which an import finds them.
    installed: tuple[tuple[str, str], ...]

    def find(self, pattern: str) -> tuple[str, str] | None:
        """Name and version of the first distribution whose name fits; None where none does."""
        names = ((re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in self.installed)
        return next(((name, version) for name, version in names if re.fullmatch(pattern, name)), None)

    @property
    def frameworks(self) -> tuple[str, ...]:
        """What of the suite's frameworks it has: `torch 2.11.0+cu130`."""
        found = (self.find(pattern) for pattern in DISTRIBUTIONS.values())
        return tuple(" ".join(one) for one in found if one)


class HostSoftware(Software):
    """A Python of this machine and the framework in it: what is on the machine is what runs."""

    python: HostPython
    distribution: str
    version: str
    horovod: str | None

    @property
    def reference(self) -> str:
        """What ran, in a few words: `torch 2.11.0+cu130 of /opt/torch/bin/python3`."""
        return f"{self.distribution} {self.version} of {self.python.path}"

    @property
    def name(self) -> str:
        """As a sentence calls it: `pytorch 2.11.0+cu130`."""
        return f"{self.framework} {self.version}"

    @property
    def software(self) -> str:
        """Names what runs as exactly as can be: versions, and whose they are."""
        beside = f" with {_HOROVOD} {self.horovod}" if self.horovod else ""
        return f"{self.reference} {self.python.version}{beside}"

    @property
    def flags(self) -> tuple[str, ...]:
        """What `bench` needs to find it again beside FRAMEWORK and ENGINE: nothing."""
        return ()


def find_host_software(framework: str, *, device: Device, horovod: bool) -> HostSoftware:
    """Look up the framework, and Horovod if it has to be there too, in the Python that `find_host_python` finds; raises RequestError."""
    if framework not in DISTRIBUTIONS:
        raise RequestError(
            f"ENGINE=host: {framework} is no Python package that could be looked up; ask for FRAMEWORK={' or '.join(DISTRIBUTIONS)}, "
            "or leave ENGINE out"
        )
    wanted = DISTRIBUTIONS[framework]
    called = wanted.partition("(")[0]
    python = find_host_python()
    if python is None:
        raise RequestError(
            f"ENGINE=host: no python3 but the suite's own is on PATH; put one there that has {called}, or leave ENGINE out"
        )
    found = python.find(wanted)
    if found is None:
        raise RequestError(
            f"ENGINE=host: {python.path} has no {called}; put a python3 first on PATH that has, or leave ENGINE out"
        )
    beside = python.find(_HOROVOD)
    if horovod and beside is None:
        raise RequestError(
            f"ENGINE=host: {python.path} has no horovod; install it there, ask for another STRATEGY, or leave ENGINE out"
        )
    return HostSoftware(
        python=python,
        framework=framework,
        distribution=found[0],
        version=found[1],
        horovod=beside[1] if beside else None,
        device=device,
    )


def find_host_python() -> HostPython | None:
    """The first `python3` on PATH that works; None where there is none.

    One in the suite's own environment is passed over, unless frameworks are installed there too: then it is no environment of the suite's
    alone. It is asked under what jobs see of the environment: what it finds, they find.
    """
    seen = {**passed(PASSED), "HOME": HOME}
    for path in process.on_path("python3"):
        try:
            told = process.run([str(path), "-c", _PROBE], env=seen, cwd=Path("/"), timeout_s=_PROBE_TIMEOUT_S)
            found = HostPython.model_validate_json(told)
        except (CommandError, OSError, ValidationError):  # a version manager's shim for a version that is not there
            continue
        is_suites_own = sys.prefix != sys.base_prefix and Path(found.prefix).resolve() == Path(sys.prefix).resolve()
        if found.frameworks or not is_suites_own:
            return found
    return None


AnyImage = ImageSpec | CustomImage | HostSoftware
