"""Software that is not the suite's: a user's image, or what ENGINE=host finds on this machine. Inspected; never pulled, built, installed or changed."""

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
from runner.engines.boxes import INHERITED
from runner.engines.command import inherited_env
from runner.engines.images import find_image
from runner.engines.process import CommandError
from runner.images.spec import ImageSpec, Software
from runner.images.versions import Device

if TYPE_CHECKING:
    from runner.engines.docker import Client


class FoundImage(Frozen):
    """An image in the engine."""

    reference: str
    id: str
    digest: str | None = None  # the registry's, with the name there; None if it was never in one
    lock_sha256: str | None = None  # set if the image is the suite's after all, or based on one
    entrypoint: tuple[str, ...] = ()  # the image's prefix to every command; vendors set up libraries there


class CustomImage(Software):
    """A user's image for the suite's own programs, with the folders of the host that are mounted in it.

    Its contents are unknown before it runs: the framework's version, which the program reports in its `env` event, the GPUs that its
    libraries have code for, and whether it has Horovod.
    """

    found: FoundImage

    @property
    def reference(self) -> str:
        """Its name in the engine."""
        return self.found.reference

    @property
    def version(self) -> str:
        """Its reference, which equals no version of the catalog: `hostroot:1`."""
        return self.found.reference

    @property
    def name(self) -> str:
        """Its name in a sentence: `pytorch hostroot:1`."""
        return f"{self.framework} {self.version}"

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """Its prefix to every command."""
        return self.found.entrypoint

    @property
    def needs_container(self) -> str:
        """Why it can't run without a container engine."""
        return f"{self.reference} is an image"

    @property
    def software(self) -> str:
        """Identifies the software as exactly as possible: the image, and the folders of the host mounted in it."""
        return " ".join((self.found.id, *(f"{mount.source}:{mount.target}" for mount in self.mounts)))

    @property
    def flags(self) -> tuple[str, ...]:
        """The options, in addition to FRAMEWORK, by which `bench` finds it again."""
        return (f"--image={self.reference}", *(f"--mount={mount.source}:{mount.target}" for mount in self.mounts))


def inspect_image(client: Client, reference: str, *, machine: str) -> FoundImage:
    """Inspect an image in the engine of a machine; it is never pulled, since the image behind a tag must not change silently.

    Raises RequestError if it is missing.
    """
    try:
        found = find_image(client, reference)
    except EngineRefusedError as error:
        raise RequestError(f"--image {reference} can't be looked up ({error}); give NAME:TAG") from error
    if found is None:
        raise RequestError(
            f"the engine of {machine} has no image {reference}; type `docker pull {reference}` there, or `dlscale images load` without a network"
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
"""Patterns of the packages that provide a framework; messages use the part before the parenthesis."""
_HOROVOD: Final = "horovod"
# Lists what is installed without importing it: a framework takes seconds to load, and may occupy a GPU.
_PROBE: Final = """
import importlib.metadata, json, sys
found = [(each.metadata["Name"] or "", each.version) for each in importlib.metadata.distributions()]
print(json.dumps({"path": sys.executable, "prefix": sys.prefix, "version": sys.version.split()[0], "installed": found}))
"""
_PROBE_TIMEOUT_S: Final = 60.0


class HostPython(Frozen):
    """A Python on this machine, by its own report."""

    path: str  # the interpreter itself, not a shim
    prefix: str  # where it and its packages are installed
    version: str
    # Name and version of each distribution, in the order in which an import searches them.
    installed: tuple[tuple[str, str], ...]

    def find(self, pattern: str) -> tuple[str, str] | None:
        """Return name and version of the first distribution whose name matches; None if there is none."""
        names = ((re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in self.installed)
        return next(((name, version) for name, version in names if re.fullmatch(pattern, name)), None)

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The suite's frameworks that are installed in it: `torch 2.11.0+cu130`."""
        found = (self.find(pattern) for pattern in DISTRIBUTIONS.values())
        return tuple(" ".join(one) for one in found if one)


class HostSoftware(Software):
    """A Python on this machine and the framework installed in it."""

    python: HostPython
    distribution: str
    version: str
    horovod: str | None

    @property
    def reference(self) -> str:
        """Identifies briefly what ran: `torch 2.11.0+cu130 of /opt/torch/bin/python3`."""
        return f"{self.distribution} {self.version} of {self.python.path}"

    @property
    def name(self) -> str:
        """Its name in a sentence: `pytorch 2.11.0+cu130`."""
        return f"{self.framework} {self.version}"

    @property
    def software(self) -> str:
        """Identifies the software as exactly as possible: all versions, and the Python that has them."""
        with_horovod = f" with {_HOROVOD} {self.horovod}" if self.horovod else ""
        return f"{self.reference} {self.python.version}{with_horovod}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The options, in addition to FRAMEWORK and ENGINE, by which `bench` finds it again: none."""
        return ()


def find_host_software(framework: str, *, device: Device, horovod: bool) -> HostSoftware:
    """Find the framework, and Horovod if required, in the Python of `find_host_python`. Raises RequestError if one is missing."""
    if framework not in DISTRIBUTIONS:
        raise RequestError(
            f"ENGINE=host: {framework} is not a Python package; ask for FRAMEWORK={' or '.join(DISTRIBUTIONS)}, "
            "or leave ENGINE out"
        )
    pattern = DISTRIBUTIONS[framework]
    package = pattern.partition("(")[0]
    python = find_host_python()
    if python is None:
        raise RequestError(
            f"ENGINE=host: PATH has no python3 except the suite's own; add one that has {package}, or leave ENGINE out"
        )
    found = python.find(pattern)
    if found is None:
        raise RequestError(
            f"ENGINE=host: {python.path} has no {package}; put a python3 first on PATH that has, or leave ENGINE out"
        )
    horovod_found = python.find(_HOROVOD)
    if horovod and horovod_found is None:
        raise RequestError(
            f"ENGINE=host: {python.path} has no horovod; install it there, ask for another STRATEGY, or leave ENGINE out"
        )
    return HostSoftware(
        python=python,
        framework=framework,
        distribution=found[0],
        version=found[1],
        horovod=horovod_found[1] if horovod_found else None,
        device=device,
    )


def find_host_python() -> HostPython | None:
    """Return the first `python3` on PATH that works; None if there is none.

    The suite's own environment is skipped, unless a framework is installed in it, which shows that it is not the suite's alone. The Python is
    queried in the environment that jobs see, so that they find the same software.
    """
    environment = {**inherited_env(INHERITED), "HOME": HOME}
    for path in process.on_path("python3"):
        try:
            output = process.run([str(path), "-c", _PROBE], env=environment, cwd=Path("/"), timeout_s=_PROBE_TIMEOUT_S)
            found = HostPython.model_validate_json(output)
        except (CommandError, OSError, ValidationError):  # a version manager's shim for a missing version
            continue
        is_suites_own = sys.prefix != sys.base_prefix and Path(found.prefix).resolve() == Path(sys.prefix).resolve()
        if found.frameworks or not is_suites_own:
            return found
    return None


AnyImage = ImageSpec | CustomImage | HostSoftware
