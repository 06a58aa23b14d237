"""Data sets on disk: folders of class folders with JPEGs, and what was packed from them. Looks, and changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from runner.errors import RequestError
from runner.trial import Dataset

# Of each class in the order of names, the last of so many images is kept for validation (`class_folders.py` of the programs splits alike).
VALIDATION_EVERY: Final = 5
JPEG_SUFFIXES: Final = frozenset({".jpg", ".jpeg"})


@dataclass(frozen=True)
class Packed:
    """A packed form of a data set.

    Attributes:
        framework: whose programs read it.
        label: what people call it.
        beside: suffixes of the files that belong to it.
    """

    framework: str
    label: str
    beside: tuple[str, ...] = (".json",)


# By the suffix of the file, or of the directory.
PACKED: Final[Mapping[str, Packed]] = {
    ".rec": Packed("mxnet", "MXNet's RecordIO", beside=(".json", ".idx")),
    ".lmdb": Packed("caffe", "Caffe's LMDB"),
    ".tfrecord": Packed("tensorflow", "TensorFlow's TFRecord"),
}


class PackIndex(BaseModel):
    """What `data pack` writes beside a packed data set: class names, number of images, and the images left out.

    `size` is the height and width in pixels of packed images, None where they have their own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    classes: tuple[str, ...]
    images: int
    skipped: tuple[str, ...]
    size: int | None = None


def inspect(path: Path, kind: Literal["images", "audio"] = "images") -> Dataset:
    """Look at what DATA names.

    Raises:
        RequestError: it does not exist, is empty, holds no JPEG in class folders (or no WAV with its text), or was packed and lacks its
            index.
    """
    if not path.exists():
        raise RequestError(f"DATA={path} does not exist; `dlscale data sample DIR` writes a small data set to try with")
    path = path.resolve()
    if kind == "audio":
        return _inspect_audio(path)
    if path.suffix in PACKED:
        return _inspect_packed(path, PACKED[path.suffix])
    if path.is_dir():
        return _inspect_folder(path)
    raise RequestError(
        f"DATA={path} is neither a folder nor a {', '.join(PACKED)}; give a folder of class folders with JPEGs"
    )


def place(path: Path) -> Path:
    """The folder that a job needs to read a data set: its own, or the one that a packed one lies in with its index."""
    return path.parent if path.suffix in PACKED else path


def _inspect_folder(path: Path) -> Dataset:
    if not any(path.iterdir()):
        raise RequestError(f"DATA={path} is empty; give a folder that holds one folder of JPEGs a class")
    digest = hashlib.sha256()
    classes: Counter[str] = Counter()
    for image in jpegs(path):
        name = image.relative_to(path)
        digest.update(f"{name.as_posix()}\0{image.stat().st_size}\0".encode())
        classes[name.parts[0]] += 1
    if not classes:
        raise RequestError(f"DATA={path} holds no JPEG in class folders (CLASS/NAME.jpg); give a folder that does")
    return Dataset(
        path=str(path),
        images=classes.total(),
        classes=len(classes),
        digest=digest.hexdigest(),
        validation_images=sum(count // VALIDATION_EVERY for count in classes.values()),
    )


def _inspect_audio(path: Path) -> Dataset:
    digest = hashlib.sha256()
    utterances = 0
    found = (file for file in path.rglob("*") if file.suffix.lower() == ".wav") if path.is_dir() else iter(())
    for file in sorted(found):
        if file.with_suffix(".txt").is_file():
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
            utterances += 1
    if not utterances:
        raise RequestError(
            f"DATA={path} holds no WAV file with a text file of the same name beside it; give a folder that does, or leave it out"
        )
    return Dataset(path=str(path), images=utterances, classes=0, digest=digest.hexdigest())


def _inspect_packed(path: Path, form: Packed) -> Dataset:
    again = f"pack it again with `dlscale data pack DIR --out {path.name}`"
    missing = [suffix for suffix in form.beside if not path.with_suffix(suffix).exists()]
    if missing:
        raise RequestError(f"DATA={path} has no {path.stem}{missing[0]} beside it; {again}")
    try:
        index = PackIndex.model_validate_json(path.with_suffix(".json").read_text(encoding="utf-8"))
        size = (path / "data.mdb" if path.is_dir() else path).stat().st_size
    except (OSError, ValidationError) as error:
        raise RequestError(f"DATA={path} or the {path.stem}.json beside it can't be read; {again}") from error
    if not index.images:
        raise RequestError(f"DATA={path} holds no image; {again}")
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
