"""Moves a set of images to a machine without any network: one file an image, and a manifest with their hashes."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from runner.core.errors import RequestError
from runner.core.frozen import FileName, Frozen
from runner.engines.images import image_id, load_image, read_image
from runner.images.wheelhouse import sha256

if TYPE_CHECKING:
    from runner.engines.docker import Client

MANIFEST: Final = "images.json"


class Archived(Frozen):
    """One image in an archive: its file, the file's SHA-256, and the image that it holds."""

    file: FileName
    sha256: str
    reference: str
    id: str


class Manifest(Frozen):
    """What an archive holds."""

    images: tuple[Archived, ...]


def save(references: Sequence[str], *, client: Client, directory: Path, report: Callable[[str], None]) -> None:
    """Write images and their manifest to a directory; raises RequestError where one is not in the engine, or it can't be written."""
    found = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for reference in references:
            identifier = image_id(client, reference)
            if identifier is None:
                raise RequestError(f"{reference} is not in the engine; build it first with `dlscale images build`")
            path = directory / f"{reference.replace('/', '-').replace(':', '-')}.tar.gz"
            report(f"saving {reference}")
            with gzip.open(path, "wb", compresslevel=1) as file:
                for block in read_image(client, reference):
                    file.write(block)
            found.append(Archived(file=path.name, sha256=sha256(path), reference=reference, id=identifier))
        (directory / MANIFEST).write_text(
            Manifest(images=tuple(found)).model_dump_json(indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise RequestError(f"{directory}: can't be written ({error.strerror}); give another directory") from error


def load(directory: Path, *, client: Client, report: Callable[[str], None]) -> tuple[Archived, ...]:
    """Check an archive's files against its manifest, then load them all.

    Raises:
        RequestError: no manifest, a file that is damaged, or an image that came out as another than it went in.
    """
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise RequestError(
            f"{directory}: holds no readable {MANIFEST}; name a directory that `dlscale images archive` wrote"
        ) from error
    for entry in manifest.images:
        path = directory / entry.file
        if not path.is_file() or sha256(path) != entry.sha256:
            raise RequestError(f"{path}: is missing or differs from its hash in {MANIFEST}; copy the archive again")
    for entry in manifest.images:
        report(f"loading {entry.reference}")
        with gzip.open(directory / entry.file, "rb") as file:
            load_image(client, file)
        if image_id(client, entry.reference) != entry.id:
            raise RequestError(
                f"{entry.reference}: came out of the archive with another id than it went in; make the archive again"
            )
    return manifest.images
