"""Makes tiny real wheels, so that tests of pip, locks and wheelhouses need no package index."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, *, tag: str = "py3-none-any", body: str = "") -> tuple[Path, str]:
    """Write `name-version-tag.whl` with one module of that name. Returns the file and its SHA-256."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": body or f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel, hashlib.sha256(wheel.read_bytes()).hexdigest()


def make_sdist(folder: Path, name: str, version: str) -> tuple[Path, str]:
    """Write a `name-version.tar.gz` that setuptools can build. Returns the file and its SHA-256."""
    files = {
        "setup.py": f"from setuptools import setup\nsetup(name={name!r}, version={version!r})\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    sdist = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"{name}-{version}/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return sdist, hashlib.sha256(sdist.read_bytes()).hexdigest()


def make_index(folder: Path, *wheels: Path) -> str:
    """Create a package index (PEP 503) of these wheels in `folder`. Returns its URL."""
    for wheel in wheels:
        page = folder / wheel.name.split("-")[0]
        page.mkdir(parents=True, exist_ok=True)
        (page / wheel.name).write_bytes(wheel.read_bytes())
        (page / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>', encoding="utf-8")
    return folder.as_uri()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
