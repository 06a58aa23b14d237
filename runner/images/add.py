"""`dlscale images add`: a new version of a known framework, as an entry of images/versions.yaml that follows the newest one like it.

What the entry says is asked of the packages themselves: versions that go with the framework's of uv, sizes of the wheels, the CUDA release
and the compute capabilities of what the framework's wheel holds. Only the built image's size is left, which `images build` writes.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runner.core.errors import RequestError
from runner.images.catalog import IMAGES, Catalog, load_images
from runner.images.lock import resolve, write_lock
from runner.images.render import write
from runner.images.spec import ImageSpec
from runner.images.wheelhouse import fetch, read_lock, size_mib

# Where a framework's wheel says what it was built for: PyTorch's list of architectures, as `torch.cuda.get_arch_list` gives it, and its
# CUDA release; both of TensorFlow, as `tf.sysconfig.get_build_info` gives them.
_TOLD: Final = ("torch/lib/libtorch_python.so", "torch/version.py", "tensorflow/python/platform/build_info.py")
_ARCHITECTURES: Final = re.compile(rb"(?:sm|compute)_\d{2,3}(?:(?:[ ;]|', ')(?:sm|compute)_\d{2,3})+")
_ARCHITECTURE: Final = re.compile(rb"(sm|compute)_(\d{1,2})(\d)\b")
_CUDA: Final = re.compile(rb"(?:cuda: Optional\[str\] = |cuda = |'cuda_version', )'(\d+\.\d+)")


def add(root: Path, framework: str, version: str, *, cache: Path, report: Callable[[str], None]) -> Path:
    """Add a version to images/versions.yaml with its lock and its Dockerfile, and return the image's folder.

    What follows the number in `version` is that of an entry there is, e.g. `2.14.1` or `2.14.1-cpu`.
    Raises RequestError: no entry is like it, it is there already, no package source has it, or its wheel does not say what it runs on.
    """
    catalog = load_images(root)
    like = _like(catalog, framework, version)
    folder = root / IMAGES / framework / version
    image = like.model_copy(
        update={"version": version, "reference": f"dlscale/{framework}:{version}", "directory": folder}
    )
    versions = root / IMAGES / "versions.yaml"
    before = versions.read_text(encoding="utf-8")
    try:
        report(f"asking which packages go with {framework} {version}")
        image = image.model_copy(update={"requirements": _requirements(like, image)})
        write_lock(image, upgrade=False)
        wheels = fetch(image, cache=cache, report=report)
        facts: dict[str, object] = {"version": version, "device": image.device}
        if image.base and image.base.name != "bookworm":
            facts["base"] = image.base.name
        text = before
        if image.device == "gpu":
            cuda, capabilities, ptx = _built_for(_main(wheels, image))
            facts |= {"cuda": cuda, "compute_capabilities": capabilities, **({"ptx": True} if ptx else {})}
            text = _with_cuda(text, catalog, cuda)
        facts |= {"requires_python": image.requires_python, "requirements": image.requirements}
        facts |= {"extra_index": image.extra_index} if image.extra_index else {}
        facts |= {"library_path": image.library_path} if image.library_path else {}
        facts["wheels_mib"] = size_mib(wheels)
        versions.write_text(_inserted(text, framework, like.version, facts), encoding="utf-8")
        write(load_images(root))
    except BaseException:
        versions.write_text(before, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def record_size(root: Path, image: ImageSpec, size: int) -> bool:
    """Write the size of a built image into its entry, where that has none yet; returns whether it had none."""
    if image.measured or image.extension:
        return False
    versions = root / IMAGES / "versions.yaml"
    lines = versions.read_text(encoding="utf-8").splitlines(keepends=True)
    _, end = _entry(lines, image.framework, image.version)
    lines.insert(end, f"      size_mib: {size}\n")
    versions.write_text("".join(lines), encoding="utf-8")
    return True


def _like(catalog: Catalog, framework: str, version: str) -> ImageSpec:
    """The newest image of the framework whose version ends as the new one does."""
    known = catalog.of(framework)
    if version in {image.version for image in known}:
        raise RequestError(
            f"{framework} {version} is in images/versions.yaml already; `dlscale images build` builds it"
        )
    ending = version.partition("-")[1:]
    alike = [image for image in known if image.kind == "wheels" and image.version.partition("-")[1:] == ending]
    if not alike or not version[:1].isdigit():
        names = ", ".join(image.version for image in known if image.kind == "wheels") or "none"
        raise RequestError(
            f"no image of {framework} made of wheels is called like {version}; these are: {names}; name the new one like one of them, or "
            "write its entry into images/versions.yaml"
        )
    return alike[0]


def _requirements(like: ImageSpec, image: ImageSpec) -> tuple[str, ...]:
    """The pins of the new image: the framework's own version, and of all else what `like` has where that goes with it."""
    old, new = (one.version.partition("-")[0] for one in (like, image))
    pins = [Requirement(text) for text in like.requirements]
    own = [text.replace(f"=={old}", f"=={new}") if f"=={old}" in text else text for text in like.requirements]
    loose = [text if f"=={new}" in text else re.sub(r"==[^;\s]+", "", text) for text in own]
    kept = "".join(f"{pin.name}{pin.specifier}\n" for pin in pins)
    found: dict[str, set[str]] = {}
    for pin in read_lock(resolve(image.model_copy(update={"requirements": tuple(loose)}), kept)):
        found.setdefault(pin.name, set()).add(pin.version)
    return tuple(
        re.sub(r"==[^;\s]+", f"=={_one(found[name], text)}", text) if f"=={new}" not in text else text
        for text in own
        for name in [canonicalize_name(Requirement(text).name)]
    )


def _one(versions: set[str], text: str) -> str:
    """The version to pin: what the requirement has, if that was found, else what was."""
    (had,) = Requirement(text).specifier
    return had.version if had.version in versions else max(versions)


def _main(wheels: tuple[Path, ...], image: ImageSpec) -> Path:
    """The wheel of the framework itself."""
    number = image.version.partition("-")[0]
    names = [Requirement(text).name for text in image.requirements if f"=={number}" in text]
    return next(wheel for wheel in wheels if wheel.name.startswith(f"{canonicalize_name(names[0]).replace('-', '_')}-"))


def _built_for(wheel: Path) -> tuple[str, tuple[str, ...], bool]:
    """CUDA release, compute capabilities of the machine code, and whether there is PTX of the newest of them; raises RequestError."""
    told = b"\n".join(_read(wheel))
    cuda, architectures = _CUDA.search(told), _ARCHITECTURES.search(told)
    if cuda is None or architectures is None:
        raise RequestError(
            f"{wheel.name} does not say which CUDA release and compute capabilities it was built for; read them off its libraries with "
            "`cuobjdump --list-elf` and write the entry into images/versions.yaml"
        )
    kinds = _ARCHITECTURE.findall(architectures[0])
    capabilities = tuple(dict.fromkeys(f"{int(major)}.{int(minor)}" for _, major, minor in kinds))
    return cuda[1].decode(), capabilities, any(kind == b"compute" for kind, _, _ in kinds)


def _read(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(set(_TOLD) & set(archive.namelist())):
            yield archive.read(name)


def _with_cuda(text: str, catalog: Catalog, cuda: str) -> str:
    """The file with a CUDA release; a minor release runs on the driver of the others of its major one."""
    known = {image.cuda: image.minimum_driver for image in catalog.images if image.cuda}
    if cuda in known or f'  "{cuda}": ' in text:
        return text
    major = cuda.partition(".")[0]
    drivers = {driver for release, driver in known.items() if release.partition(".")[0] == major}
    if len(drivers) != 1:
        raise RequestError(
            f"images/versions.yaml has no CUDA {cuda}; add it under `cuda` with its minimum driver (CUDA Toolkit Release Notes)"
        )
    return text.replace("\ncuda:\n", f'\ncuda:\n  "{cuda}": {{minimum_driver: {drivers.pop()}}}\n')


def _inserted(text: str, framework: str, after: str, facts: dict[str, object]) -> str:
    """The file with an entry, behind that of another version; JSON is YAML."""
    lines = text.splitlines(keepends=True)
    _, end = _entry(lines, framework, after)
    fields = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in facts.items()]
    lines[end:end] = [f"    - {fields[0]}", *(f"      {field}" for field in fields[1:])]
    return "".join(lines)


def _entry(lines: list[str], framework: str, version: str) -> tuple[int, int]:
    """The lines of an entry, from and to, without the blank ones behind it."""
    begin = next(
        number
        for number in range(lines.index(f"  {framework}:\n", lines.index("images:\n")), len(lines))
        if re.fullmatch(rf"    - version: [\"']?{re.escape(version)}[\"']?\s*", lines[number])
    )
    end = begin + 1
    while end < len(lines) and lines[end].startswith("      "):
        end += 1
    return begin, end
