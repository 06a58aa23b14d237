"""Inspects data sets on disk: class folders with JPEGs, packed forms of them, utterances, tokens. Changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from runner.core.container_spec import IMAGE_USER
from runner.core.errors import RequestError, is_utf8, readable
from runner.core.frozen import Frozen
from runner.core.trial import Dataset
from runner.core.workload import DataKind

# In each class every fifth image, in order of name, is kept for validation (`class_folders.py` splits alike in the programs).
VALIDATION_EVERY: Final = 5
JPEG_SUFFIXES: Final = frozenset({".jpg", ".jpeg"})
TOKEN_BYTES: Final = 2
# Tokens of a file that its digest samples: reading some hundred gigabytes would take minutes.
SAMPLED_TOKENS: Final = 4096
# Exists on every ext4 file system, readable by root only; it is no class and holds no samples.
LOST_AND_FOUND: Final = "lost+found"


@dataclass(frozen=True)
class Packed:
    """A packed form of a data set, which one framework's programs read, and the program of `workloads/` that packs a folder.

    `companions` are the suffixes of its companion files. `sized`: all its images have one size, so that each size needs its own.
    `needed`: the framework reads no other form.
    """

    suffix: str  # of the file, or of the directory
    framework: str
    label: str
    program: str
    companions: tuple[str, ...] = (".json",)
    sized: bool = False
    needed: bool = True


_FORMS: Final = (
    Packed(".rec", "mxnet", "MXNet's RecordIO", "imagenet_cnn/pack_recordio.py", companions=(".json", ".idx")),
    Packed(".lmdb", "caffe", "Caffe's LMDB", "imagenet_cnn/pack_lmdb.py", sized=True),
    Packed(".tfrecord", "tensorflow", "TensorFlow's TFRecord", "imagenet_cnn/pack_tfrecord.py", needed=False),
)
PACKED: Final[Mapping[str, Packed]] = {form.suffix: form for form in _FORMS}
PACKED_FOR: Final[Mapping[str, Packed]] = {form.framework: form for form in _FORMS}


class PackIndex(Frozen):
    """The index that `data pack` writes next to a packed data set; `size` is the height and width of all images in pixels, None if they differ."""

    classes: tuple[str, ...]
    images: int
    skipped: tuple[str, ...]
    size: int | None = None


def inspect(path: Path, kind: DataKind = "images", *, readable_by_others: bool = False) -> Dataset:
    """Inspect DATA as the kind of data that the workload reads. Raises RequestError if the job can't read it, or if it has no samples.

    `readable_by_others`: all of it must be readable by other users, since root's jobs in containers run as another user.
    """
    if not path.exists():
        raise RequestError(f"DATA={path} does not exist; `dlscale data sample DIR` writes a small data set to try with")
    path = path.resolve()
    if readable_by_others:
        refuse_private(mount_source(path))
    files = _Files(mount_source(path), readable_by_others=readable_by_others)
    if kind == "audio":
        return _inspect_audio(path, files)
    if kind == "tokens":
        return _inspect_tokens(path, readable_by_others=readable_by_others)
    if path.suffix in PACKED:
        return _inspect_packed(path, PACKED[path.suffix], files)
    if path.is_dir():
        return _inspect_folder(path, files)
    raise RequestError(
        f"DATA={path} is neither a folder nor a {', '.join(PACKED)}; give a folder of class folders with JPEGs"
    )


def refuse_private(path: Path) -> None:
    """Refuse a folder or file that other users may not read: in a container the job runs as another user."""
    if _is_private(path):
        raise RequestError(_refusal(path, f"chmod o+{'rx' if path.is_dir() else 'r'} {shlex.quote(str(path))}"))


def refuse_private_folders(folders: Sequence[Path], *, user: str) -> None:
    """Refuse to mount folders that jobs may not read if `user` is the images' own. The RequestError gives the command that makes one readable."""
    for folder in folders:
        if user == IMAGE_USER and folder.is_dir():
            refuse_private(folder)


def _is_private(path: Path) -> bool:
    mode = path.stat().st_mode
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & needed != needed


def _refusal(path: Path, step: str) -> str:
    return f"{path} can be read by its owner only, and jobs in containers never run as root; type `{step}`"


class _Files:
    """The files of a data set below `root`, with `readable_by_others` all readable by other users. `digest` is over the names and sizes of added files."""

    def __init__(self, root: Path, *, readable_by_others: bool) -> None:
        self.digest = hashlib.sha256()
        self._root = root
        self._readable_by_others = readable_by_others
        self._open = {root}

    def add(self, file: Path) -> None:
        """Add a file to the digest; its name has to be UTF-8."""
        name = file.relative_to(self._root).as_posix()
        if not is_utf8(name):
            raise RequestError(f"DATA={self._root}: the name of {readable(name)} is not UTF-8; rename it")
        self.check(file)
        self.digest.update(f"{name}\0{file.stat().st_size}\0".encode())

    def check(self, file: Path) -> None:
        """If others must be able to read it, refuse a file that they may not read, or in a folder that they may not enter."""
        if not self._readable_by_others:
            return
        folders = () if file.parent in self._open else reversed(file.relative_to(self._root).parents)
        for step in (*(self._root / folder for folder in folders), file):
            if step not in self._open and _is_private(step):
                raise RequestError(_refusal(step, f"chmod -R o+rX {shlex.quote(str(self._root))}"))
        self._open |= set(file.parents)


def mount_source(path: Path) -> Path:
    """Return the path that a job needs to read a data set: the data set itself, or the folder of a packed one and its index."""
    return path.parent if path.suffix in PACKED else path


def _inspect_folder(path: Path, files: _Files) -> Dataset:
    if not any(path.iterdir()):
        raise RequestError(f"DATA={path} is empty; give a folder that holds one folder of JPEGs a class")
    classes: Counter[str] = Counter()
    for image in jpegs(path):
        files.add(image)
        classes[image.relative_to(path).parts[0]] += 1
    if not classes:
        raise RequestError(f"DATA={path} holds no JPEG in class folders (CLASS/NAME.jpg); give a folder that does")
    return Dataset(
        path=str(path),
        images=classes.total(),
        classes=len(classes),
        digest=files.digest.hexdigest(),
        validation_images=sum(count // VALIDATION_EVERY for count in classes.values()),
    )


def _inspect_audio(path: Path, files: _Files) -> Dataset:
    utterances = 0
    for file in sorted(_files(path)) if path.is_dir() else ():
        if file.suffix.lower() == ".wav" and file.with_suffix(".txt").is_file():
            files.add(file)
            files.check(file.with_suffix(".txt"))
            utterances += 1
    if not utterances:
        raise RequestError(
            f"DATA={path} holds no WAV file with a text file of the same name beside it; give a folder that does, or leave it out"
        )
    return Dataset(path=str(path), images=utterances, classes=0, digest=files.digest.hexdigest())


def _inspect_tokens(path: Path, *, readable_by_others: bool) -> Dataset:
    """Inspect a file of 16-bit token numbers; each counts as a sample."""
    size = path.stat().st_size if path.is_file() else 0
    if not size or size % TOKEN_BYTES:
        raise RequestError(
            f"DATA={path} is not a file of 16-bit token numbers; `dlscale data tokens FILE... --out=NAME.bin` writes one, or leave it out"
        )
    if readable_by_others:
        refuse_private(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for offset in range(0, size, max(TOKEN_BYTES, size // SAMPLED_TOKENS)):
            file.seek(offset)
            digest.update(file.read(TOKEN_BYTES))
    digest.update(str(size).encode())
    return Dataset(path=str(path), images=size // TOKEN_BYTES, classes=0, digest=digest.hexdigest())


def _inspect_packed(path: Path, form: Packed, files: _Files) -> Dataset:
    again = f"pack it again with `dlscale data pack DIR --out {path.name}`"
    for suffix in form.companions:
        if not path.with_suffix(suffix).exists():
            raise RequestError(f"DATA={path} has no {path.stem}{suffix} beside it; {again}")
    main = path / "data.mdb" if path.is_dir() else path
    try:
        index = PackIndex.model_validate_json(path.with_suffix(".json").read_text(encoding="utf-8"))
        size = main.stat().st_size
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise RequestError(f"DATA={path} or the {path.stem}.json beside it can't be read; {again}") from error
    if not index.images:
        raise RequestError(f"DATA={path} holds no image; {again}")
    for file in (main, *(path.with_suffix(suffix) for suffix in form.companions)):
        files.check(file)
    facts = json.dumps([list(index.classes), index.images, size]).encode()
    return Dataset(
        path=str(path), images=index.images, classes=len(index.classes), digest=hashlib.sha256(facts).hexdigest()
    )


def jpegs(root: Path) -> Iterator[Path]:
    """Yield the JPEGs in the class folders of `root` in a fixed order. Raises RequestError for a folder that can't be read."""
    for folder in sorted(entry for entry in root.iterdir() if entry.is_dir()):
        yield from sorted(image for image in _files(folder) if image.suffix.lower() in JPEG_SUFFIXES)


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder. Links are followed, but no folder is visited twice, as in the programs (`class_folders.py`)."""
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=_refuse_unreadable, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = [] if real in seen else sorted(folders)
        if real in seen:
            continue
        seen.add(real)
        yield from (file for file in (Path(parent, name) for name in names) if file.is_file())


def _refuse_unreadable(error: OSError) -> None:
    if Path(error.filename).name == LOST_AND_FOUND:
        return
    raise RequestError(
        f"{readable(error.filename)} can't be read ({error.strerror}) and may hold samples; make it readable with chmod, or remove it"
    ) from error
