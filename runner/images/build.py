"""Builds images, and transfers sets of them to a machine without any network: one file an image, and a manifest with their hashes.

The wheelhouse is part of the build context, no step has a network, and an image that is current is not built again.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.core.cache import file_lock, free_mib
from runner.core.errors import RequestError
from runner.core.frozen import FileName, Frozen, reading
from runner.core.provenance import SUITE_ROOT
from runner.engines.base import EngineError
from runner.engines.images import (
    build_image,
    find_image,
    image_id,
    load_image,
    prune_images,
    read_image,
    remove_unnamed,
)
from runner.engines.process import read_git
from runner.images.base import check_packages, ensure_base
from runner.images.catalog import IMAGES
from runner.images.lock import ensure_container, source
from runner.images.spec import ImageSpec
from runner.images.wheelhouse import fetch, file_sha256

if TYPE_CHECKING:
    from runner.engines.docker import Client

LABEL_INPUTS: Final = "dlscale.inputs.sha256"
LABEL_LOCK: Final = "dlscale.lock.sha256"
LABEL_BASE: Final = "dlscale.base.id"
LABEL_PARENT: Final = "dlscale.parent.id"
LABEL_BUILDER: Final = "dlscale.builder"
LABEL_REVISION: Final = "org.opencontainers.image.revision"
_TAIL_STEPS: Final = 5


@dataclass(frozen=True)
class BuiltImage:
    """An image in the engine."""

    reference: str
    id: str
    digest: str | None  # the registry's digest; None if the image was never in one
    lock_sha256: str
    size_mib: int
    current: bool  # whether a build would yield the same now


def find_built(image: ImageSpec, client: Client) -> BuiltImage | None:
    """Return the image if the engine has it, whatever it was built from."""
    found = find_image(client, image.reference)
    if found is None:
        return None
    digests = found.attrs.get("RepoDigests") or []
    return BuiltImage(
        reference=image.reference,
        id=str(found.id),
        digest=digests[0].partition("@")[2] if digests else None,
        lock_sha256=str(found.labels.get(LABEL_LOCK)),
        size_mib=int(found.attrs["Size"]) // 2**20,
        current=is_current(image, found.labels, based_on=based_on(image, client)),
    )


def based_on(image: ImageSpec, client: Client) -> dict[str, str]:
    """Return the ids of images that this one is based on, by label, as far as they are in the engine."""
    references = {
        LABEL_BASE: image.base.reference if image.base else source(image),
        LABEL_PARENT: image.parent.reference if image.parent else None,
    }
    found = {label: image_id(client, reference) for label, reference in references.items() if reference}
    return {label: identifier for label, identifier in found.items() if identifier}


def ensure(image: ImageSpec, *, client: Client, cache: Path, report: Callable[[str], None]) -> BuiltImage:
    """Ensure that the engine has an image, and first the one that it extends, built from the present lock, Dockerfile and base.

    Raises RequestError if there is too little disk, a wheel or base is not available, or a step of the build fails.
    """
    if image.parent:
        ensure(image.parent, client=client, cache=cache, report=report)
    if (found := find_built(image, client)) and found.current:  # without waiting for another image's build
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with file_lock(cache / "build.busy", waiting=lambda: report("waiting for another run that builds an image")):
        old = find_built(image, client)
        if old and old.current:
            return old
        check_disk(image, client)
        _ensure_bases(image, client=client, cache=cache, report=report)
        wheels = fetch(image, cache=cache, report=report)
        report(f"building {image.reference}")
        _build(image, wheels, client=client, cache=cache, report=report)
        if old:
            remove_unnamed(client, old.id)
    built = find_built(image, client)
    if built is None:
        raise RequestError(f"{image.reference} was built, but is not in the engine; check its disk and its log")
    return built


def _ensure_bases(image: ImageSpec, *, client: Client, cache: Path, report: Callable[[str], None]) -> None:
    """Ensure that the engine has everything that an image's Dockerfile starts from."""
    for base in filter(None, (image.base, image.build_base)):
        ensure_base(base, client=client, root=SUITE_ROOT, cache=cache, report=report)
    if image.kind == "container":
        ensure_container(image, client=client, report=report)
    if image.kind == "debian":
        check_packages(image, client=client)


def _build(
    image: ImageSpec, wheels: tuple[Path, ...], *, client: Client, cache: Path, report: Callable[[str], None]
) -> None:
    """Build the image and report its steps; the error of a failed step has its last output."""
    files = {"Dockerfile": image.dockerfile, image.lock_path.name: image.lock_path, "smoke.py": smoke_test(image)}
    files |= {f"patches/{path.name}": path for path in image.patches}
    files |= {f"wheels/{wheel.name}": wheel for wheel in sorted(wheels)}
    labels = {
        LABEL_INPUTS: build_inputs_sha256(image),
        **based_on(image, client),
        LABEL_REVISION: read_git(SUITE_ROOT).commit or "unknown",
    }
    tail: deque[str] = deque(maxlen=_TAIL_STEPS)
    try:
        for text in build_image(client, files, tag=image.reference, labels=labels, scratch=cache, network="none"):
            tail += filter(None, [text])
            if text.startswith("Step "):
                report(f"{image.reference}: {text.splitlines()[0][:100]}")
    except EngineError as error:
        output = " / ".join(tail)
        raise RequestError(f"building {image.reference} failed: {error} (last output: {output})") from error
    finally:
        # The builder's stage holds every wheel once more; the image has what it installed.
        prune_images(client, label=f"{LABEL_BUILDER}={image.reference}")


def is_current(image: ImageSpec, labels: Mapping[str, str], *, based_on: Mapping[str, str]) -> bool:
    """Whether a build now would yield an image with these labels; `based_on` has the ids that must match, of images in the engine."""
    return labels.get(LABEL_INPUTS) == build_inputs_sha256(image) and all(
        labels.get(key) == based_on[key] for key in based_on
    )


def build_inputs_sha256(image: ImageSpec) -> str:
    """Return the digest of all inputs of an image's build: equal inputs need no new build."""
    digest = hashlib.sha256((image.base.reference if image.base else str(image.container)).encode())
    for path in (image.dockerfile, image.lock_path, smoke_test(image), *image.patches):
        with reading(path, "can't be read", step="run `dlscale images render`"):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    if image.parent:
        digest.update(build_inputs_sha256(image.parent).encode())
    return digest.hexdigest()


def smoke_test(image: ImageSpec) -> Path:
    """Return the program that is the last step of the image's build."""
    name = image.extension or ("container" if image.kind == "container" else image.framework)
    return SUITE_ROOT / IMAGES / "smoke" / f"{name}.py"


def check_disk(image: ImageSpec, client: Client) -> None:
    """Refuse a build if the engine's disk is too small; that of an engine on another host can't be checked."""
    root = Path(client.info()["DockerRootDir"])
    if root.exists() and (free := free_mib(root)) < image.build_mib:
        raise RequestError(
            f"{root} has {free} MiB free, building {image.name} takes {image.build_mib} MiB; free some, or ask for a smaller image"
        )


MANIFEST: Final = "images.json"


class Archived(Frozen):
    """One image in an archive: its file, the file's SHA-256, and the image inside, with the hash of its lock if it is labelled with one."""

    file: FileName
    sha256: str
    reference: str
    id: str
    lock_sha256: str | None = None


class Manifest(Frozen):
    """What an archive holds."""

    images: tuple[Archived, ...]


def save(references: Sequence[str], *, client: Client, directory: Path, report: Callable[[str], None]) -> None:
    """Write images and their manifest to a directory. Raises RequestError if one is not in the engine, or if the directory can't be written."""
    found = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for reference in references:
            image = find_image(client, reference)
            if image is None:
                raise RequestError(f"{reference} is not in the engine; build it first with `dlscale images build`")
            path = directory / f"{reference.replace('/', '-').replace(':', '-')}.tar.gz"
            report(f"saving {reference}")
            with gzip.open(path, "wb", compresslevel=1) as file:
                for block in read_image(client, reference):
                    file.write(block)
            found.append(
                Archived(
                    file=path.name,
                    sha256=file_sha256(path),
                    reference=reference,
                    id=str(image.id),
                    lock_sha256=image.labels.get(LABEL_LOCK),
                )
            )
        (directory / MANIFEST).write_text(
            Manifest(images=tuple(found)).model_dump_json(indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise RequestError(f"{directory}: can't be written ({error.strerror}); give another directory") from error


def read_manifest(directory: Path) -> Manifest:
    """Read an archive's manifest. Raises RequestError if there is none."""
    step = "name a directory that `dlscale images archive` wrote"
    with reading(directory, f"holds no readable {MANIFEST}", step=step):
        return Manifest.model_validate_json((directory / MANIFEST).read_text(encoding="utf-8"))


def load(directory: Path, *, client: Client, report: Callable[[str], None]) -> tuple[Archived, ...]:
    """Check an archive's files against its manifest, then load them all. Raises RequestError if a file is missing or anything differs."""
    manifest = read_manifest(directory)
    for entry in manifest.images:
        path = directory / entry.file
        if not path.is_file() or file_sha256(path) != entry.sha256:
            raise RequestError(f"{path}: is missing or differs from its hash in {MANIFEST}; copy the archive again")
    for entry in manifest.images:
        report(f"loading {entry.reference}")
        with gzip.open(directory / entry.file, "rb") as file:
            load_image(client, file)
        if image_id(client, entry.reference) != entry.id:
            raise RequestError(
                f"{entry.reference}: has another id after loading than in {MANIFEST}; create the archive again"
            )
    return manifest.images
