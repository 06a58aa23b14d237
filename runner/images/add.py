"""`dlscale images add`: a new version of a known framework, as an entry of images/versions.yaml modelled on the newest similar one.

The packages themselves provide the entry's facts: uv finds the versions that go with the framework's, and the Pythons that all of them have
wheels for; the wheels have sizes; the framework's wheel holds its CUDA release and compute capabilities. Only the built image's size is
missing, which `images build` writes.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runner.core.errors import RequestError
from runner.images.catalog import IMAGES, Catalog, load_images, release
from runner.images.lock import resolve, write_lock
from runner.images.render import write
from runner.images.spec import ImageSpec
from runner.images.versions import BaseSpec, Entry
from runner.images.wheelhouse import fetch, read_lock, size_mib

# Files in which a framework's wheel says what it was built for: PyTorch's list of architectures, as `torch.cuda.get_arch_list` returns it, and
# its CUDA release; for TensorFlow both, as `tf.sysconfig.get_build_info` returns them.
_INFO_FILES: Final = ("torch/lib/libtorch_python.so", "torch/version.py", "tensorflow/python/platform/build_info.py")
_ARCHITECTURES: Final = re.compile(rb"(?:sm|compute)_\d{2,3}(?:(?:[ ;]|', ')(?:sm|compute)_\d{2,3})+")
_ARCHITECTURE: Final = re.compile(rb"(sm|compute)_(\d{1,2})(\d)\b")
# NVIDIA's wheel of CUDA's runtime: its version is the CUDA release that PyTorch was built for, known before any download.
_RUNTIME: Final = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
_CUDA_LINE: Final = re.compile(r'  "(\d+\.\d+)": {minimum_driver: ')  # a CUDA release in images/versions.yaml
_WORD: Final = re.compile(r"[\w.:/=+-]+")
_PYTHONS: Final = range(10, 16)  # 3.10, the oldest that the suite runs in, to 3.15, the newest in existence
_CUDA: Final = re.compile(rb"(?:cuda: Optional\[str\] = |cuda = |'cuda_version', )'(\d+\.\d+)")


def add(
    root: Path,
    framework: str,
    version: str,
    *,
    cuda: str | None = None,
    python: str | None = None,
    cache: Path,
    report: Callable[[str], None],
) -> ImageSpec:
    """Add a version to images/versions.yaml with its lock and its Dockerfile; return its image.

    After the number, `version` ends as an existing entry does, e.g. `2.14.1` or `2.14.1-cpu`. `cuda` selects the framework's build for a CUDA
    release, `cu126`; `python` selects another Python than that of the similar entry, `3.13`. Whatever is not the version's default is added to
    its name: `2.14.1-cu126-py313`.
    Raises RequestError if no entry is similar, the version exists already, no package source or base has it, or its wheel does not say what
    it runs on.
    """
    catalog = load_images(root)
    similar = _similar(catalog, framework, version, on_gpu=cuda is not None)
    followed = similar[0]
    base = _base(catalog, followed, python)
    suffix = "" if base == followed.base else f"-py{base.python.replace('.', '')}"
    image = _with_version(followed.model_copy(update={"base": base}), root, version + suffix)
    report(f"asking which packages go with {framework} {version}")
    image, runtime = _pin_requirements(image, followed)
    if cuda and runtime != _cuda_release(cuda) and (index := _cuda_index(catalog, framework, cuda)):
        image = _with_version(image.model_copy(update={"extra_index": index}), root, f"{version}-{cuda}{suffix}")
        try:
            image, _ = _pin_requirements(image, _with_cuda_packages(followed, _cuda_release(cuda)), build=f"+{cuda}")
        except RequestError as error:
            raise RequestError(
                f"no package source has {framework} {version} built for CUDA {_cuda_release(cuda)}; leave out --cuda"
                f"{f' (the default build is for {runtime})' if runtime else ''} or name another version"
            ) from error
    versions = root / IMAGES / "versions.yaml"
    before = versions.read_text(encoding="utf-8")
    if image.version in {other.version for other in catalog.of(framework)}:
        raise RequestError(f"{image.name} is in images/versions.yaml already; `dlscale images build` builds it")
    try:
        image = image.model_copy(update={"requires_python": _pythons(image, base)})
        write_lock(image, upgrade=False, step=_step(followed))
        wheels = fetch(image, cache=cache, report=report)
        facts: dict[str, object] = {"version": image.version, "device": image.device}
        facts |= {"base": base.name} if base.name != Entry.model_fields["base"].default else {}
        text = before
        if image.device == "gpu":
            built, capabilities, ptx = _built_for(_framework_wheel(wheels, image), cuda and _cuda_release(cuda))
            facts |= {"cuda": built, "compute_capabilities": capabilities, **({"ptx": True} if ptx else {})}
            text = _with_cuda(text, catalog, built)
        facts |= {"requires_python": image.requires_python, "requirements": image.requirements}
        facts |= {"extra_index": image.extra_index} if image.extra_index else {}
        facts |= {"library_path": image.library_path} if image.library_path else {}
        facts["wheels_mib"] = size_mib(wheels)
        versions.write_text(_with_entry(text, image, similar, facts), encoding="utf-8")
        catalog = load_images(root)
        write(catalog)
    except BaseException:
        versions.write_text(before, encoding="utf-8")
        shutil.rmtree(image.directory, ignore_errors=True)
        raise
    return next(other for other in catalog.images if other.directory == image.directory)


def record_size(root: Path, image: ImageSpec, size: int) -> bool:
    """Write the size of a built image into its entry if it has none yet; return whether it had none."""
    if image.measured or image.extension:
        return False
    versions = root / IMAGES / "versions.yaml"
    lines = versions.read_text(encoding="utf-8").splitlines(keepends=True)
    _, end = _entry_lines(lines, image.framework, image.version)
    lines.insert(end, f"      size_mib: {size}\n")
    versions.write_text("".join(lines), encoding="utf-8")
    return True


def _similar(catalog: Catalog, framework: str, version: str, *, on_gpu: bool) -> list[ImageSpec]:
    """Return the framework's images whose versions end as the new one does, newest first; only those for GPUs if `on_gpu`."""
    known = [image for image in catalog.of(framework) if image.kind == "wheels"]
    suffix = version.partition("-")[1:]
    similar = [
        image for image in known if image.version.partition("-")[1:] == suffix and (image.device == "gpu" or not on_gpu)
    ]
    if not similar or not version[:1].isdigit():
        names = ", ".join(image.version for image in known) or "none"
        raise RequestError(
            f"no image of {framework} made of wheels{' for GPUs' * on_gpu} is named like {version}; known: {names}; name the new one like "
            "one of them, or write its entry into images/versions.yaml"
        )
    return similar


def _base(catalog: Catalog, followed: ImageSpec, python: str | None) -> BaseSpec:
    """Return the base of the similar image, or the one with the same packages and another Python."""
    own = followed.base
    if own is None:
        raise TypeError(f"{followed.name} is made of wheels and has no base")
    if python in (None, own.python):
        return own
    similar = {
        base.python: base
        for base in catalog.bases
        if not base.locked and base.name.removeprefix(base.suite) == own.name.removeprefix(own.suite)
    }
    if python not in similar:
        known = ", ".join(f"{number} ({base.name})" for number, base in sorted(similar.items()))
        raise RequestError(f"no base of images/versions.yaml has Python {python} for {followed.name}; known: {known}")
    return similar[python]


def _with_version(image: ImageSpec, root: Path, version: str) -> ImageSpec:
    return image.model_copy(
        update={
            "version": version,
            "reference": f"dlscale/{image.framework}:{version}",
            "directory": root / IMAGES / image.framework / version,
        }
    )


def _cuda_release(cuda: str) -> str:
    """Convert `cu126` to CUDA's own number, 12.6."""
    found = re.fullmatch(r"cu(\d+)(\d)", cuda)
    if found is None:
        raise RequestError(f"--cuda {cuda} is not a CUDA release; write it as package names do: cu126, cu130")
    return ".".join(found.groups())


def _cuda_index(catalog: Catalog, framework: str, cuda: str) -> str | None:
    """Return the index of a framework's builds for one CUDA release, a sibling of the index that another of its images uses."""
    known = [image.extra_index for image in catalog.of(framework) if image.extra_index]
    return f"{known[0].rpartition('/')[0]}/{cuda}" if known else None


def _with_cuda_packages(image: ImageSpec, cuda: str) -> ImageSpec:
    """Rename packages that have a CUDA release's major number in their names, such as DALI's, for another release."""
    major = cuda.partition(".")[0]
    named = tuple(re.sub(r"(?<=-cuda)\d+(?=0==)", major, text) for text in image.requirements)
    return image.model_copy(update={"requirements": named})


def _pin_requirements(image: ImageSpec, followed: ImageSpec, *, build: str = "") -> tuple[ImageSpec, str | None]:
    """Pin the image's requirements: the framework's own version, and for all others the version of `followed` if it is compatible.

    Returns:
        The image, and the release of the CUDA runtime among its packages, if any. Raises RequestError if there is no solution.
    """
    old, new = (one.version.partition("-")[0] for one in (followed, image))
    own = [text.replace(f"=={old}", f"=={new}{build}") for text in followed.requirements]
    loose = tuple(text if f"=={new}" in text else re.sub(r"==[^;\s]+", "", text) for text in own)
    pins = [Requirement(text) for text in followed.requirements]
    kept = "".join(f"{pin.name}{pin.specifier}\n" for pin in pins)
    text = resolve(image.model_copy(update={"requirements": loose}), kept, on=image.base, step=_step(followed))
    found = {pin.name: pin.version for pin in read_lock(text)}
    runtime = next((version for name, version in found.items() if _RUNTIME.fullmatch(name)), None)
    requirements = tuple(
        re.sub(r"==[^;\s]+", f"=={found[name]}", text) if name in found and f"=={new}" not in text else text
        for text in own
        for name in [canonicalize_name(Requirement(text).name)]
    )
    image = image.model_copy(update={"requirements": requirements})
    return image, runtime and ".".join(runtime.split(".")[:2])


def _pythons(image: ImageSpec, base: BaseSpec) -> str:
    """Return the range of Pythons, around the base's own, that every package has wheels for."""

    def has(minor: int) -> bool:
        try:
            resolve(image, "", on=base.model_copy(update={"python": f"3.{minor}"}))
        except RequestError:
            return False
        return True

    lowest = highest = int(base.python.partition(".")[2])
    while lowest - 1 in _PYTHONS and has(lowest - 1):
        lowest -= 1
    while highest + 1 in _PYTHONS and has(highest + 1):
        highest += 1
    return f"==3.{lowest}.*" if lowest == highest else f">=3.{lowest},<3.{highest + 1}"


def _framework_wheel(wheels: tuple[Path, ...], image: ImageSpec) -> Path:
    """Return the wheel of the framework itself."""
    prefix = canonicalize_name(_package(image)).replace("-", "_")
    return next(wheel for wheel in wheels if wheel.name.startswith(f"{prefix}-"))


def _package(image: ImageSpec) -> str:
    """Return the name of the framework's package."""
    number = image.version.partition("-")[0]
    return next(Requirement(text).name for text in image.requirements if f"=={number}" in text)


def _step(followed: ImageSpec) -> str:
    """Say what to do about a version that the package sources lack, or lack for the base's Python."""
    return f"name another version, one of those that `pip index versions {_package(followed)}` lists"


def _built_for(wheel: Path, wanted: str | None) -> tuple[str, tuple[str, ...], bool]:
    """Return CUDA release, compute capabilities of the machine code, and whether there is PTX for the newest of them.

    Raises RequestError if the wheel does not say, or if it is built for another release than `wanted`.
    """
    info = b"\n".join(_build_info(wheel))
    cuda, architectures = _CUDA.search(info), _ARCHITECTURES.search(info)
    if cuda is None or architectures is None:
        raise RequestError(
            f"{wheel.name} does not say which CUDA release and compute capabilities it was built for; read them off its libraries with "
            "`cuobjdump --list-elf` and write the entry into images/versions.yaml"
        )
    if wanted not in (None, cuda[1].decode()):
        raise RequestError(
            f"{wheel.name} is built for CUDA {cuda[1].decode()}, not {wanted}; leave out --cuda, or name another version"
        )
    kinds = _ARCHITECTURE.findall(architectures[0])
    capabilities = tuple(dict.fromkeys(f"{int(major)}.{int(minor)}" for _, major, minor in kinds))
    return cuda[1].decode(), capabilities, any(kind == b"compute" for kind, _, _ in kinds)


def _build_info(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(set(_INFO_FILES) & set(archive.namelist())):
            yield archive.read(name)


def _with_cuda(text: str, catalog: Catalog, cuda: str) -> str:
    """Add a CUDA release to the file; its minimum driver is that of the same major release's other minor ones."""
    known = {image.cuda: image.minimum_driver for image in catalog.images if image.cuda}
    if cuda in known or f'  "{cuda}": ' in text:
        return text
    drivers = {driver for release, driver in known.items() if _number(release)[0] == _number(cuda)[0]}
    if len(drivers) != 1:
        raise RequestError(
            f"images/versions.yaml has no CUDA {cuda}; add it under `cuda` with its minimum driver (CUDA Toolkit Release Notes)"
        )
    lines = text.splitlines(keepends=True)
    listed = [(number, found[1]) for number, line in enumerate(lines) if (found := _CUDA_LINE.match(line))]
    after = max((number for number, release in listed if _number(release) < _number(cuda)), default=listed[0][0] - 1)
    lines.insert(after + 1, f'  "{cuda}": {{minimum_driver: {drivers.pop()}}}\n')
    return "".join(lines)


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _with_entry(text: str, image: ImageSpec, similar: Sequence[ImageSpec], facts: dict[str, object]) -> str:
    """Insert an entry into the file, in the order of versions among similar ones."""
    lines = text.splitlines(keepends=True)
    newer = [other for other in similar if release(other.version) > release(image.version)]
    begin, end = _entry_lines(lines, image.framework, (newer or similar)[-1 if newer else 0].version)
    place = begin if newer else end
    fields = [f"{key}: {_yaml(value)}\n" for key, value in facts.items()]
    lines[place:place] = [f"    - {fields[0]}", *(f"      {field}" for field in fields[1:])]
    return "".join(lines)


def _yaml(value: object) -> str:
    """Write a value in the style of the file: bare if YAML reads it as the same word, otherwise as JSON, which is YAML."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    is_word = isinstance(value, str) and _WORD.fullmatch(value) and yaml.safe_load(value) == value
    return str(value) if is_word else json.dumps(value)


def _entry_lines(lines: list[str], framework: str, version: str) -> tuple[int, int]:
    """Return the lines of an entry, from and to, without the blank ones after it."""
    begin = next(
        number
        for number in range(lines.index(f"  {framework}:\n", lines.index("images:\n")), len(lines))
        if re.fullmatch(rf"    - version: [\"']?{re.escape(version)}[\"']?\s*", lines[number])
    )
    end = begin + 1
    while end < len(lines) and lines[end].startswith("      "):
        end += 1
    return begin, end
