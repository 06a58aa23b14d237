"""Images that are given: made by others, looked up in the engine, never pulled and never built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.engines.base import EngineRefusedError
from runner.engines.images import find_image
from runner.images.host_software import HostSoftware
from runner.images.spec import ImageSpec, Software

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


AnyImage = ImageSpec | CustomImage | HostSoftware


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
