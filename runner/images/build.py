"""Builds images: the wheelhouse goes in with the build's context, no step has a network, an image that is there is not built again."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from runner.core.cache import alone, free_mib
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.engines.base import EngineRefusedError, as_engine_error
from runner.engines.git import read_git
from runner.engines.images import find_image
from runner.images.base import base_id, ensure_base
from runner.images.catalog import IMAGES
from runner.images.container import container_id, ensure_container
from runner.images.packages import check_packages
from runner.images.spec import ImageSpec
from runner.images.wheelhouse import fetch

if TYPE_CHECKING:
    from runner.engines.docker import Client, EngineImage

LABEL_INPUTS: Final = "dlscale.inputs.sha256"
LABEL_BASE: Final = "dlscale.base.id"
LABEL_PARENT: Final = "dlscale.parent.id"
LABEL_BUILDER: Final = "dlscale.builder"
LABEL_REVISION: Final = "org.opencontainers.image.revision"
_TAIL: Final = 5


@dataclass(frozen=True)
class BuiltImage:
    """An image in the engine.

    Attributes:
        id: digest of its configuration; names its every byte.
        digest: the registry's digest; None for an image that never was in one.
    """

    reference: str
    id: str
    digest: str | None
    lock_sha256: str
    size_mib: int


def find_built(image: ImageSpec, client: Client) -> BuiltImage | None:
    """The image, if the engine has it, whatever it was built from."""
    found = find_image(client, image.reference)
    return _describe(image, found) if found else None


def is_outdated(image: ImageSpec, client: Client) -> bool:
    """Whether the engine has the image, but not as it would be built now."""
    found = find_image(client, image.reference)
    return found is not None and not is_current(image, found.labels, below=below(image, client))


def below(image: ImageSpec, client: Client) -> dict[str, str]:
    """What an image stands on, as its labels name it: ids of those that are in the engine."""
    base = base_id(image.base, client) if image.base else container_id(image, client)
    parent = find_image(client, image.parent.reference) if image.parent else None
    found = {LABEL_BASE: base, LABEL_PARENT: str(parent.id) if parent else None}
    return {label: identifier for label, identifier in found.items() if identifier}


def ensure(image: ImageSpec, *, client: Client, cache: Path, report: Callable[[str], None]) -> BuiltImage:
    """Have an image in the engine, and first the one that it extends, built from the lock, Dockerfile and base that it should be.

    Args:
        image: what to build.
        client: the engine.
        cache: where wheels and bases are kept.
        report: told each step.

    Raises:
        RequestError: too little disk, a wheel or base that can't be had, or a step of the build that fails.
    """
    if image.parent:
        ensure(image.parent, client=client, cache=cache, report=report)
    if current := _current(image, client):  # without waiting for another image's build
        return current
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / "build.busy", waiting=lambda: report("waiting for another run that builds an image")):
        if current := _current(image, client):
            return current
        old = find_image(client, image.reference)
        check_disk(image, client)
        _lay_ground(image, client=client, cache=cache, report=report)
        wheels = fetch(image, cache=cache, report=report)
        report(f"building {image.reference}")
        _build(image, wheels, client=client, cache=cache, report=report)
        if old:
            _remove_untagged(client, str(old.id))
    built = find_built(image, client)
    if built is None:
        raise RequestError(f"{image.reference} was built and is not in the engine; look at its disk and its log")
    return built


def _current(image: ImageSpec, client: Client) -> BuiltImage | None:
    """The image, if the engine has it as it would be built now."""
    found = find_image(client, image.reference)
    return _describe(image, found) if found and is_current(image, found.labels, below=below(image, client)) else None


def _lay_ground(image: ImageSpec, *, client: Client, cache: Path, report: Callable[[str], None]) -> None:
    """Have everything in the engine that an image's Dockerfile starts from."""
    for base in filter(None, (image.base, image.build_base)):
        ensure_base(base, client=client, root=SUITE_ROOT, cache=cache, report=report)
    if image.kind == "container":
        ensure_container(image, client=client, report=report)
    if image.kind == "debian":
        check_packages(image, client=client)


def _build(
    image: ImageSpec,
    wheels: tuple[Path, ...],
    *,
    client: Client,
    cache: Path,
    report: Callable[[str], None],
) -> None:
    with tempfile.TemporaryFile(dir=cache) as context:
        _write_context(context, image, wheels)
        context.seek(0)
        labels = {
            LABEL_INPUTS: inputs_sha256(image),
            **below(image, client),
            LABEL_REVISION: read_git(SUITE_ROOT).commit or "unknown",
        }
        steps = client.api.build(
            fileobj=context,
            custom_context=True,
            tag=image.reference,
            network_mode="none",
            labels=labels,
            rm=True,
            forcerm=True,
            decode=True,
        )
        try:
            _follow(steps, image, report)
        finally:
            # The builder's stage holds every wheel once more, and what it installed is in the image.
            client.images.prune(filters={"dangling": True, "label": f"{LABEL_BUILDER}={image.reference}"})


def _remove_untagged(client: Client, identifier: str) -> None:
    """Remove an image that a new one has replaced, unless somebody gave it another name or runs it."""
    with contextlib.suppress(EngineRefusedError), as_engine_error():
        if not client.images.get(identifier).tags:
            client.images.remove(identifier)


def is_current(image: ImageSpec, labels: Mapping[str, str], *, below: Mapping[str, str]) -> bool:
    """Whether an image with these labels is what would be built now; what it stands on counts as far as the engine has it."""
    return labels.get(LABEL_INPUTS) == inputs_sha256(image) and all(labels.get(key) == below[key] for key in below)


def inputs_sha256(image: ImageSpec) -> str:
    """Digest of all that an image is built from: equal inputs need no new build."""
    digest = hashlib.sha256((image.base.reference if image.base else str(image.container)).encode())
    for path in _inputs(image):
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise RequestError(f"{path}: can't be read ({error.strerror}); run `dlscale images render`") from error
    if image.parent:
        digest.update(inputs_sha256(image.parent).encode())
    return digest.hexdigest()


def _inputs(image: ImageSpec) -> tuple[Path, ...]:
    """The files of the checkout that a build takes."""
    return (image.dockerfile, image.lock_path, smoke_test(image), *image.patches)


def smoke_test(image: ImageSpec) -> Path:
    """The program that is the last step of the image's build."""
    name = image.extension or ("container" if image.kind == "container" else image.framework)
    return SUITE_ROOT / IMAGES / "smoke" / f"{name}.py"


def check_disk(image: ImageSpec, client: Client) -> None:
    """Refuse a build for which the engine's disk is too small; an engine on another host can't be asked.

    Raises:
        RequestError: with what is free and what is needed.
    """
    root = Path(client.info()["DockerRootDir"])
    if root.exists() and (free := free_mib(root)) < image.build_mib:
        raise RequestError(
            f"{root} has {free} MiB free, building {image.name} takes {image.build_mib} MiB; free some, or ask for a smaller image"
        )


def _write_context(file: IO[bytes], image: ImageSpec, wheels: tuple[Path, ...]) -> None:
    """The build's context as a tar, the same bytes for the same inputs, so that the engine's layers are found again."""
    members = {"Dockerfile": image.dockerfile, image.lock_path.name: image.lock_path, "smoke.py": smoke_test(image)}
    members |= {f"patches/{path.name}": path for path in image.patches}
    members |= {f"wheels/{wheel.name}": wheel for wheel in sorted(wheels)}
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, path in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(info, content)


def _follow(steps: Iterator[dict[str, Any]], image: ImageSpec, report: Callable[[str], None]) -> None:
    """Pass on the steps of a build.

    Raises:
        RequestError: a step failed; the sentence carries its last words.
    """
    tail: list[str] = []
    for step in steps:
        if "error" in step:
            said = " / ".join(line for line in tail[-_TAIL:] if line)
            raise RequestError(f"building {image.reference} failed: {step['error'].strip()} (last output: {said})")
        text = str(step.get("stream", "")).strip()
        if text:
            tail.append(text)
        if text.startswith("Step "):
            report(f"{image.reference}: {text.splitlines()[0][:100]}")


def _describe(image: ImageSpec, found: EngineImage) -> BuiltImage:
    digests = found.attrs.get("RepoDigests") or []
    return BuiltImage(
        reference=image.reference,
        id=str(found.id),
        digest=digests[0].partition("@")[2] if digests else None,
        lock_sha256=str(found.labels.get("dlscale.lock.sha256")),
        size_mib=int(found.attrs["Size"]) // 2**20,
    )
