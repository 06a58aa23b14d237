"""The Debian systems under the images and emulated nodes: from a registry by digest or, if none answers, from this machine's own Debian mirror.

A mirror yields the same root, byte for byte, until its packages change. The label `dlscale.base` says where an image came from. Debian's mirrors
keep one version of each package, so the lock of a suite without further updates can't be used to fetch packages: it records what an
image is made of, and a base with other packages is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from runner.core.errors import NoBaseError, RequestError
from runner.core.provenance import SUITE_ROOT
from runner.engines import process
from runner.engines.base import EngineError
from runner.engines.images import ask_registry, build_image, image_id, load_image, run_confined
from runner.engines.process import CommandError
from runner.images.catalog import IMAGES, load_images
from runner.images.lock import header, write_if_changed
from runner.images.spec import ImageSpec
from runner.images.versions import BaseSpec
from runner.images.wheelhouse import file_sha256

if TYPE_CHECKING:
    from runner.engines.docker import Client

Way = Literal["registry", "mirror"]

LABEL_PACKAGES: Final = "dlscale.base.packages.sha256"
PACKAGE_LIST: Final = "usr/share/dlscale/packages.txt"
# The registry's slim image excludes these too.
_DPKG_OPTIONS: Final = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
)
# Removed last: what identifies this machine or its mirror, what differs between runs (sshd's keys, which moreover must not be shared), and
# what only apt would need.
_REMOVED: Final = (
    *("etc/apt/sources.list", "etc/apt/sources.list.d/*", "etc/apt/apt.conf.d/99mmdebstrap"),
    *("etc/machine-id", "etc/hostname", "etc/resolv.conf", "etc/ssh/ssh_host_*"),
    *("var/cache/apt/*", "var/cache/debconf/*-old", "var/cache/ldconfig/*"),
    *("var/lib/apt/lists/*", "var/lib/dpkg/*-old", "var/log/*"),
)
TOOLS: Final = "bookworm-tools"


def ensure_base(
    base: BaseSpec,
    *,
    client: Client,
    root: Path,
    cache: Path,
    report: Callable[[str], None],
    way: Way | None = None,
    refresh: bool = False,
) -> str:
    """Ensure that the engine has the base, made again with today's packages if `refresh`; return its image id.

    `root` is the checkout with the rendered Dockerfile, which is used if a registry answers; bases made from a mirror are kept in the cache's
    folder `bases`. If `way` is None, it is the registry if that answers, otherwise the mirror.
    Raises RequestError if neither a registry nor a mirror provides the base.
    """
    found = None if refresh else image_id(client, base.reference)
    if found:
        return found
    if way is None:
        reason = ask_registry(base.registry.pinned).reason
        if reason is not None:
            report(
                f"no registry has {base.registry.image} ({reason}); making Debian {base.suite} from this machine's mirror"
            )
        way = "registry" if reason is None else "mirror"
    if way == "registry":
        return _from_registry(base, client, base_dockerfile(root, base), cache, report)
    return _from_mirror(base, client, cache, report, refresh=refresh)


def base_dockerfile(root: Path, base: BaseSpec) -> Path:
    """Return the path of a base's rendered Dockerfile."""
    return root / IMAGES / "base" / base.name / "Dockerfile"


def package_list(base: BaseSpec, client: Client) -> str:
    """List the packages of a base in the engine, one `name=version` a line, sorted by name."""
    return run_confined(client, base.reference, ("cat", f"/{PACKAGE_LIST}"), network="none")


def tools_base() -> BaseSpec:
    """Return the base in which emulated nodes run tc."""
    return load_images(SUITE_ROOT).base(TOOLS)


def ensure_tools(client: Client, *, cache: Path, report: Callable[[str], None]) -> str:
    """Ensure that the engine has that base; return its reference. Raises RequestError as `ensure_base` does."""
    base = tools_base()
    ensure_base(base, client=client, root=SUITE_ROOT, cache=cache, report=report)
    return base.reference


def _from_registry(base: BaseSpec, client: Client, dockerfile: Path, cache: Path, report: Callable[[str], None]) -> str:
    """Build the base's Dockerfile; a second, cached build adds the digest of the package list that the first one installed."""
    report(f"building {base.reference} from {base.registry.image}")
    cache.mkdir(parents=True, exist_ok=True)
    labels: dict[str, str] = {}
    try:
        for _ in range(2):
            for step in build_image(
                client, {"Dockerfile": dockerfile}, tag=base.reference, labels=labels, scratch=cache
            ):
                if step.startswith("Step "):
                    report(f"{base.reference}: {step.splitlines()[0][:100]}")
            labels = {LABEL_PACKAGES: hashlib.sha256(package_list(base, client).encode()).hexdigest()}
        return str(image_id(client, base.reference))
    except EngineError as error:
        raise RequestError(
            f"{base.reference} could not be built from {base.registry.pinned} ({error}); `dlscale images base --way mirror` "
            f"uses this machine's Debian mirror instead"
        ) from error


def _from_mirror(base: BaseSpec, client: Client, cache: Path, report: Callable[[str], None], *, refresh: bool) -> str:
    archive = fetch_base(base, cache=cache, report=report, refresh=refresh)
    with archive.open("rb") as file:
        load_image(client, file)
    found = image_id(client, base.reference)
    if found is None:
        raise RequestError(f"{archive}: does not contain {base.reference}; remove this file and try again")
    return found


def fetch_base(base: BaseSpec, *, cache: Path, report: Callable[[str], None], refresh: bool = False) -> Path:
    """Return the base as an image archive in the cache's folder `bases`, made by `build_archive` if it is missing; needs no engine."""
    archive = cache / "bases" / f"{base.reference.rpartition(':')[2]}.tar"
    if refresh or not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            draft = Path(folder) / "image.tar"
            build_archive(base, draft, report=report)
            draft.replace(archive)
    return archive


def build_archive(base: BaseSpec, target: Path, *, report: Callable[[str], None]) -> str:
    """Make the base from this machine's Debian mirror, as the image archive `target`; return the image's id.

    Needs as much disk again for a root next to the archive.
    Raises NoBaseError if there is no mmdebstrap, no Debian source on this machine, or a package is not available.
    """
    root = target.with_suffix(".root.tar")
    # In a file, not in argv: a proxy's address may hold a password.
    options = target.with_suffix(".apt.conf")
    options.write_text(apt_transport(), encoding="utf-8")
    argv = mmdebstrap(base, sources=debian_sources(base.suite), options=options, target=root)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(base.source_date_epoch), "LC_ALL": "C.UTF-8"}
    report(f"making Debian {base.suite} with mmdebstrap, about a minute")

    def on_line(line: str) -> None:
        if line.startswith("I: ") and not line.startswith("I: running "):
            report(f"mmdebstrap: {line.removeprefix('I: ')}")

    try:
        process.follow(argv, on_line=on_line, env=environment)
    except CommandError as error:
        if error.code is None:
            raise NoBaseError(
                "mmdebstrap, which builds the base, is not installed; install it (apt-get install mmdebstrap), or ask for ENGINE=venv"
            ) from error
        errors = [line for line in error.stderr.splitlines() if line.startswith("E: ")]
        raise NoBaseError(
            f"mmdebstrap could not build the base ({errors[0] if errors else error.last_line}); run `apt-get update` and try again"
        ) from error
    finally:
        options.unlink()
    labels = {
        "dlscale.base": "mirror",
        "dlscale.base.suite": base.suite,
        LABEL_PACKAGES: hashlib.sha256(_member(root, PACKAGE_LIST)).hexdigest(),
    }
    identifier = write_image(
        root=root, target=target, reference=base.reference, labels=labels, created_s=base.source_date_epoch
    )
    root.unlink()
    return identifier


def mmdebstrap(base: BaseSpec, *, sources: tuple[str, ...], options: Path, target: Path) -> tuple[str, ...]:
    """Return the command that makes the root, as the tar file `target`, from these lines of sources.list.

    `options` is a file of apt options for access to the mirror; it is not kept in the root.
    """
    list_packages = (
        f'mkdir -p "$1/{PACKAGE_LIST.rpartition("/")[0]}" && chroot "$1" dpkg-query --show '
        f"--showformat '${{Package}}=${{Version}}\\n' > \"$1/{PACKAGE_LIST}\""
    )
    remove = f'cd "$1" && rm -rf {" ".join(_REMOVED)}'
    return (
        *("mmdebstrap", "--variant=minbase", "--architectures=amd64", "--format=tar"),
        f"--include={','.join(base.packages)}",
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        *('--aptopt=Acquire::Languages "none"', f"--aptopt={options}"),
        # The signatures of a suite without further updates expire; its lock says which packages must result.
        *(('--aptopt=Acquire::Check-Valid-Until "false"',) if base.locked else ()),
        *(f"--customize-hook={list_packages}", f"--customize-hook={remove}"),
        *(base.suite, str(target)),
        *sources,
    )


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as file:
        for entry in file:
            if entry.name.removeprefix("./") == name:
                content = file.extractfile(entry)
                return content.read() if content else b""
    raise RequestError(f"mmdebstrap wrote no {name} into the base; its hooks did not run (see `mmdebstrap --version`)")


def write_image(*, root: Path, target: Path, reference: str, labels: Mapping[str, str], created_s: int) -> str:
    """Wrap a root file system, a tar file that becomes the only layer unmodified, into the image archive `target`.

    Returns:
        The image's id, `sha256:...`: the same for the same arguments.
    """
    layer = file_sha256(root)
    created = datetime.fromtimestamp(created_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _json(
        {
            "architecture": "amd64",
            "config": {
                "Cmd": ["python3"],
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Labels": dict(labels),
            },
            "created": created,
            "history": [{"created": created, "created_by": "dlscale images base"}],
            "os": "linux",
            "rootfs": {"diff_ids": [f"sha256:{layer}"], "type": "layers"},
        }
    )
    identifier = hashlib.sha256(config).hexdigest()
    manifest = _json([{"Config": f"{identifier}.json", "Layers": [f"{layer}/layer.tar"], "RepoTags": [reference]}])
    with tarfile.open(target, "w") as archive, root.open("rb") as content:
        for name, size, file in (
            (f"{identifier}.json", len(config), io.BytesIO(config)),
            ("manifest.json", len(manifest), io.BytesIO(manifest)),
            (f"{layer}/layer.tar", root.stat().st_size, content),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = size, created_s, 0o644
            archive.addfile(entry, file)
    return f"sha256:{identifier}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


MIRROR_VARIABLE: Final = "DLSCALE_DEBIAN_MIRROR"
_FORMAT: Final = "$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)"
_APT_HELPER: Final = "/usr/lib/apt/apt-helper"
# A suite itself, its updates between two point releases, its security fixes.
_RELEASE_SUFFIXES: Final = ("", "-updates", "-security")


def debian_sources(suite: str) -> tuple[str, ...]:
    """Return this machine's apt sources for a Debian suite, its updates and its security fixes, as lines of sources.list.

    A suite other than the machine's own comes from the same mirrors, which keep all of Debian's suites side by side. DLSCALE_DEBIAN_MIRROR
    names one address instead, for a machine that is not Debian, without updates and fixes. Raises NoBaseError if apt has no such source.
    """
    chosen = os.environ.get(MIRROR_VARIABLE)
    if chosen:
        return (f"deb {chosen} {suite} main",)
    try:
        listed = process.run(["apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages"])
    except CommandError:
        listed = ""
    targets = [line.split(" ", 3) for line in listed.splitlines()]
    own = [(release, uri) for origin, component, release, uri in targets if (origin, component) == ("Debian", "main")]
    lines = _source_lines(own, suite) or _source_lines(_other_suite(own, suite), suite)
    if not lines:
        raise NoBaseError(
            f"apt on this machine knows no source of Debian {suite}; run `apt-get update`, or set {MIRROR_VARIABLE} to a mirror's address"
        )
    return lines


def _source_lines(sources: Iterable[tuple[str, str]], suite: str) -> tuple[str, ...]:
    """Return the sources of a suite, its updates and its security fixes; none if the suite itself is missing."""
    wanted = {f"{suite}{part}" for part in _RELEASE_SUFFIXES}
    found = {(release, uri) for release, uri in sources if release in wanted}
    return tuple(sorted(f"deb {uri} {release} main" for release, uri in found)) if suite in dict(found) else ()


def _other_suite(sources: Iterable[tuple[str, str]], suite: str) -> Iterator[tuple[str, str]]:
    """Yield another suite's releases on the mirrors of this machine's own suite, if they have them."""
    for release, uri in dict.fromkeys(sources):
        part = next((part for part in reversed(_RELEASE_SUFFIXES) if release.endswith(part)), "")
        if "-" not in release.removesuffix(part) and _has_release(uri, f"{suite}{part}"):
            yield f"{suite}{part}", uri


def _has_release(uri: str, release: str) -> bool:
    """Whether a mirror has a release, by apt's own transport."""
    with tempfile.TemporaryDirectory(prefix="dlscale-mirror-") as folder:
        try:
            process.run([_APT_HELPER, "download-file", f"{uri}dists/{release}/InRelease", f"{folder}/InRelease"])
        except CommandError:
            return False
    return True


def apt_transport() -> str:
    """Return this machine's proxies and certificates for apt, as apt writes them."""
    try:
        dump = process.run(["apt-config", "dump", "--no-empty"])
    except CommandError:
        return ""
    return "".join(
        f"{line}\n" for line in dump.splitlines() if line.startswith(("Acquire::http::", "Acquire::https::"))
    )


def write_packages(
    image: ImageSpec, *, client: Client, cache: Path, report: Callable[[str], None], upgrade: bool
) -> bool:
    """Write the packages of a `debian` image's base to its lock; return whether the lock changed.

    With `upgrade`, the base is first made again with the mirror's present packages. Raises RequestError if the base is not available.
    """
    base = _base(image)
    ensure_base(base, client=client, root=image.directory.parents[2], cache=cache, report=report, refresh=upgrade)
    return write_if_changed(image.lock_path, header(image) + package_list(base, client))


def check_packages(image: ImageSpec, *, client: Client) -> None:
    """Compare the packages of an image's base with its lock. Raises RequestError with the first difference and two remedies."""
    base = _base(image)
    locked = set(_packages(image.lock_path.read_text(encoding="utf-8")))
    found = set(_packages(package_list(base, client)))
    if locked == found:
        return
    names = {package.partition("=")[0] for package in locked ^ found}
    first = min(names)
    versions = [
        next((package.partition("=")[2] for package in side if package.partition("=")[0] == first), "nothing")
        for side in (found, locked)
    ]
    raise RequestError(
        f"{base.reference} differs in {len(names)} packages from {image.lock_path} ({first}: {versions[0]} instead of "
        f"{versions[1]}); set {MIRROR_VARIABLE} to a mirror that has the locked ones and type `dlscale images base {base.name} --refresh`, "
        f"or accept these with `dlscale images lock {image.framework}:{image.tag}`"
    )


def _base(image: ImageSpec) -> BaseSpec:
    if image.base is None:
        raise TypeError(f"{image.name} stands on no base")
    return image.base


def _packages(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]
