"""Data sets on disk: folders of class folders with JPEGs, and the RecordIO files packed from them. Looks, and changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from runner.errors import RequestError
from runner.trial import Dataset

JPEG_SUFFIXES: Final = frozenset({".jpg", ".jpeg"})


class PackIndex(BaseModel):
    """What `data pack` writes beside a RecordIO file: class names, number of images, and the images left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    classes: tuple[str, ...]
    images: int
    skipped: tuple[str, ...]


def inspect(path: Path) -> Dataset:
    """Look at what DATA names.

    Raises:
        RequestError: it does not exist, is empty, holds no JPEG in class folders, or is a RecordIO file without its index.
    """
    if not path.exists():
        raise RequestError(f"DATA={path} does not exist; `dlscale data sample DIR` writes a small data set to try with")
    return _inspect_folder(path.resolve()) if path.is_dir() else _inspect_recordio(path.resolve())


def _inspect_folder(path: Path) -> Dataset:
    if not any(path.iterdir()):
        raise RequestError(f"DATA={path} is empty; give a folder that holds one folder of JPEGs a class")
    digest = hashlib.sha256()
    images, classes = 0, set()
    for image in jpegs(path):
        name = image.relative_to(path)
        digest.update(f"{name.as_posix()}\0{image.stat().st_size}\0".encode())
        classes.add(name.parts[0])
        images += 1
    if not images:
        raise RequestError(f"DATA={path} holds no JPEG in class folders (CLASS/NAME.jpg); give a folder that does")
    return Dataset(path=str(path), images=images, classes=len(classes), digest=digest.hexdigest())


def _inspect_recordio(path: Path) -> Dataset:
    if path.suffix != ".rec":
        raise RequestError(
            f"DATA={path} is neither a folder nor a .rec file; give a folder of class folders with JPEGs"
        )
    try:
        index = PackIndex.model_validate_json(path.with_suffix(".json").read_text(encoding="utf-8"))
        size = path.stat().st_size
        has_offsets = path.with_suffix(".idx").exists()
    except (OSError, ValidationError) as error:
        raise RequestError(
            f"DATA={path} has no readable {path.stem}.json beside it; pack it again with `dlscale data pack`"
        ) from error
    if not has_offsets or not index.images:
        raise RequestError(f"DATA={path} lacks its .idx file or holds no image; pack it again with `dlscale data pack`")
    facts = json.dumps([list(index.classes), index.images, size]).encode()
    return Dataset(
        path=str(path), images=index.images, classes=len(index.classes), digest=hashlib.sha256(facts).hexdigest()
    )


def jpegs(root: Path) -> Iterator[Path]:
    """The JPEGs in the class folders of `root`, in a fixed order."""
    for folder in sorted(entry for entry in root.iterdir() if entry.is_dir()):
        yield from sorted(
            image for image in folder.rglob("*") if image.suffix.lower() in JPEG_SUFFIXES and image.is_file()
        )
