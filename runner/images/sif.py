"""Images as files for machines without Docker: a SIF for Apptainer, or the archive that Podman loads, made once where all nodes see them.

Each image has a folder of its own in the cache. The file that describes a SIF is written last: without it, the SIF is incomplete.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from runner.core.cache import cache_dir, file_lock
from runner.core.errors import RequestError
from runner.core.frozen import Frozen, reading
from runner.engines import docker, owner
from runner.engines.base import EngineError
from runner.engines.process import CommandError, follow, run
from runner.images.build import LABEL_LOCK, Archived, read_manifest, save
from runner.images.spec import ImageSpec
from runner.images.wheelhouse import file_sha256

_DETAILS: Final = "sif.json"


class Sif(Frozen):
    """What a SIF was made from (the image, its id in the engine that built it, its lock), with the SIF's own SHA-256 and size in bytes."""

    reference: str
    id: str
    lock_sha256: str | None
    sha256: str
    size: int


def folder(image: ImageSpec) -> Path:
    """Return the folder of an image's files."""
    return cache_dir() / "images" / slug(image.reference)


def slug(reference: str) -> str:
    """Convert a reference to a part of a file's name."""
    return reference.replace("/", "-").replace(":", "-")


def ensure_sif(image: ImageSpec, *, report: Callable[[str], None]) -> tuple[Path, Sif]:
    """Return an image's SIF, made if missing from the archive in its folder or from this machine's Docker. Raises RequestError if neither has it."""
    if found := find_sif(image):
        return found
    entry, archive = ensure_archive(image, report=report)
    return make_sif(entry, archive, where=folder(image), report=report)


def find_sif(image: ImageSpec) -> tuple[Path, Sif] | None:
    """Return an image's SIF if it was made from the present lock. Raises RequestError if the file's size has changed since."""
    found = _read(folder(image))
    return found if found and found[1].lock_sha256 == image.lock_sha256 else None


def _read(where: Path) -> tuple[Path, Sif] | None:
    """Return the SIF in a folder, if any. Raises RequestError if its size is wrong."""
    details = where / _DETAILS
    if not details.exists():
        return None
    with reading(details, "can't be read", step="remove it, and type `dlscale images sif` again"):
        sif = Sif.model_validate_json(details.read_text(encoding="utf-8"))
    path = details.parent / _name(sif.reference, sif.id)
    if not path.exists():
        return None
    if path.stat().st_size != sif.size:
        raise RequestError(
            f"{path}: differs from the SIF that was made; remove {details}, and type `dlscale images sif` again"
        )
    return path, sif


def make_sif(entry: Archived, archive: Path, *, where: Path, report: Callable[[str], None]) -> tuple[Path, Sif]:
    """Convert an image's archive to a SIF in a folder. Raises RequestError with Apptainer's message if that fails."""
    where.mkdir(parents=True, exist_ok=True)
    path = where / _name(entry.reference, entry.id)
    draft = path.with_suffix(".draft")
    with file_lock(where / "sif.busy", waiting=lambda: report("waiting for another run that makes a SIF")):
        if (found := _read(where)) and found[1].id == entry.id:
            return found
        report(f"making {path} of {entry.reference}, a minute or more")
        try:
            with _unpack(archive, where) as tar:
                follow(("apptainer", "build", "--force", str(draft), f"docker-archive:{tar}"), on_line=lambda _: None)
        except CommandError as error:
            raise RequestError(
                f"{entry.reference}: apptainer could not make a SIF of {archive} ({error.last_line}); check its disk"
            ) from error
        draft.replace(path)
        made = Sif(
            reference=entry.reference,
            id=entry.id,
            lock_sha256=entry.lock_sha256,
            sha256=file_sha256(path),
            size=path.stat().st_size,
        )
        (where / _DETAILS).write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path, made


@contextmanager
def _unpack(archive: Path, where: Path) -> Iterator[Path]:
    """Unpack an archive to a tar, which exists during the block: Podman 4.3 and Apptainer 1.4 find no header in the output of Python's gzip.

    Tars of killed runners are removed.
    """
    stem = f"{archive.stem}-"
    for stale in where.glob(f"{stem}*.tar"):
        if owner.state(stale.stem.removeprefix(stem)) == "gone":
            stale.unlink(missing_ok=True)
    tar = where / f"{stem}{owner.this_process() or os.getpid()}.tar"
    try:
        with gzip.open(archive, "rb") as packed, tar.open("wb") as file:
            shutil.copyfileobj(packed, file, 2**20)
        yield tar
    finally:
        tar.unlink(missing_ok=True)


def ensure_archive(image: ImageSpec, *, report: Callable[[str], None]) -> tuple[Archived, Path]:
    """Return an image's archive in its folder, made if missing from this machine's Docker. Raises RequestError if neither has it."""
    where = folder(image)
    try:
        return find_archive(image, where)
    except RequestError as error:
        try:
            with closing(docker.connect()) as client:
                save([image.reference], client=client, directory=where, report=report)
        except EngineError:
            raise RequestError(
                f"{where} has no file of {image.reference}, and no Docker answers here to make one; on a machine with Docker type "
                f"`dlscale images archive DIR {image.framework}:{image.tag}`, and here `dlscale images sif --archive DIR "
                f"{image.framework}:{image.tag}`"
            ) from error
    return find_archive(image, where)


def find_archive(image: ImageSpec, directory: Path) -> tuple[Archived, Path]:
    """Find an image in a directory that `dlscale images archive` wrote. Raises RequestError if it is missing, or made from another lock."""
    entry = next((one for one in read_manifest(directory).images if one.reference == image.reference), None)
    if entry is None or not (directory / entry.file).is_file() or entry.lock_sha256 != image.lock_sha256:
        raise RequestError(
            f"{directory}: has no {image.reference} of the present lock; write it with `dlscale images archive`"
        )
    return entry, directory / entry.file


def ensure_in_podman(image: ImageSpec, ask: Callable[[tuple[str, ...]], str], *, report: Callable[[str], None]) -> str:
    """Load an image's archive into a Podman that lacks it; return the image's id. Raises RequestError if it is not available.

    `ask` runs a command on the machine of that Podman.
    """
    if found := _podman_id(image, ask):
        return found
    _, archive = ensure_archive(image, report=report)
    report(f"podman: loading {image.reference}")
    try:
        with _unpack(archive, folder(image)) as tar:
            ask(("podman", "load", "--quiet", "--input", str(tar)))
    except CommandError as error:
        raise RequestError(f"podman could not load {archive} ({error.last_line}); see `podman info`") from error
    if (found := _podman_id(image, ask)) is None:
        raise RequestError(f"podman loaded {archive}, but has no {image.reference}; see `podman images`")
    return found


def _podman_id(image: ImageSpec, ask: Callable[[tuple[str, ...]], str]) -> str | None:
    """Return the id of Podman's image; None if it has none, or one of another lock."""
    form = f'{{{{.Id}}}} {{{{index .Labels "{LABEL_LOCK}"}}}}'
    try:
        identifier, lock = ask(("podman", "image", "inspect", "--format", form, image.reference)).split()
    except (CommandError, ValueError):
        return None
    return identifier if lock == image.lock_sha256 else None


def find_squashfs(image: ImageSpec) -> Path:
    """Return the file for Pyxis, which enroot makes from an image. Raises RequestError if it is missing."""
    path = folder(image) / f"{slug(image.reference)}.sqsh"
    if not path.is_file():
        raise RequestError(
            f"{path} is not there; on a machine with Docker type `enroot import -o {path} dockerd://{image.reference}`"
        )
    return path


def ask_here(argv: tuple[str, ...]) -> str:
    """Run a command on this machine: the local `ask`."""
    return run(argv, timeout_s=None)


def _name(reference: str, identifier: str) -> str:
    return f"{slug(reference)}-{identifier.removeprefix('sha256:')[:12]}.sif"
