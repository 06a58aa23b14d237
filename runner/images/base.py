"""The Debian systems under the images and emulated nodes: from a registry by digest, or, where none answers, from this machine's own Debian mirror.

The second way gives the same root, byte for byte, for the same state of the mirror. Its label `dlscale.base` says which way
an image came.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from runner.core.errors import NoBaseError, RequestError
from runner.core.provenance import SUITE_ROOT
from runner.engines import process
from runner.engines.base import EngineError, as_engine_error
from runner.engines.images import ask_registry, find_image
from runner.engines.process import CommandError
from runner.images.catalog import IMAGES, load_images
from runner.images.mirror import apt_transport, debian_sources
from runner.images.versions import BaseSpec
from runner.images.wheelhouse import sha256

if TYPE_CHECKING:
    from runner.engines.docker import Client

Way = Literal["registry", "mirror"]

LABEL_PACKAGES: Final = "dlscale.base.packages.sha256"
PACKAGE_LIST: Final = "usr/share/dlscale/packages.txt"
# What the registry's slim image leaves out too.
_DPKG_OPTIONS: Final = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
)
# Removed last: what names this machine or its mirror, what differs from run to run (and must not be the same everywhere: sshd's own
# keys), and what only apt would need.
_REMOVED: Final = (
    *(
        "etc/apt/sources.list",
        "etc/apt/sources.list.d/*",
        "etc/apt/apt.conf.d/99mmdebstrap",
        "etc/machine-id",
        "etc/hostname",
        "etc/resolv.conf",
        "etc/ssh/ssh_host_*",
    ),
    *(
        "var/cache/apt/*",
        "var/cache/debconf/*-old",
        "var/cache/ldconfig/*",
        "var/lib/apt/lists/*",
        "var/lib/dpkg/*-old",
        "var/log/*",
    ),
)


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
    """Have the base in the engine and return its image id.

    Args:
        base: what it is made from.
        client: the engine.
        root: the checkout, which holds the rendered recipe for where a registry answers.
        cache: bases made from a mirror are kept in its folder `bases`.
        report: told what is being done.
        way: how; the registry if it answers, else the mirror, when None.
        refresh: make it again even if it is there, with the packages that the mirror has now.

    Raises:
        RequestError: neither a registry nor a mirror gives one.
    """
    found = None if refresh else base_id(base, client)
    if found:
        return found
    if way is None:
        silence = ask_registry(base.registry.pinned).silence
        if silence is not None:
            report(
                f"no registry has {base.registry.image} ({silence}); making Debian {base.suite} from this machine's mirror"
            )
        way = "registry" if silence is None else "mirror"
    if way == "registry":
        return _from_registry(base, client, recipe(root, base), report)
    return _from_mirror(base, client, cache, report, refresh=refresh)


def base_id(base: BaseSpec, client: Client) -> str | None:
    """Id of the base in the engine; None if it is not there."""
    found = find_image(client, base.reference)
    return str(found.id) if found else None


def recipe(root: Path, base: BaseSpec) -> Path:
    """The rendered Dockerfile of a base."""
    return root / IMAGES / "base" / base.name / "Dockerfile"


def package_list(base: BaseSpec, client: Client) -> str:
    """The packages that a base in the engine holds, one `name=version` a line, by name."""
    said: bytes = client.containers.run(base.reference, ["cat", f"/{PACKAGE_LIST}"], remove=True, network_mode="none")
    return said.decode()


def _from_registry(base: BaseSpec, client: Client, dockerfile: Path, report: Callable[[str], None]) -> str:
    """Build the base's Dockerfile; a second, cached pass adds the digest of the package list that the first one installed."""
    report(f"building {base.reference} from {base.registry.image}")
    options: dict[str, Any] = {"path": str(dockerfile.parent), "tag": base.reference, "rm": True, "forcerm": True}
    try:
        with as_engine_error():
            client.images.build(**options)
            packages = package_list(base, client)
            image, _ = client.images.build(
                **options, labels={LABEL_PACKAGES: hashlib.sha256(packages.encode()).hexdigest()}
            )
    except EngineError as error:
        raise RequestError(
            f"{base.reference} could not be built from {base.registry.pinned} ({error}); `dlscale images base --way mirror` "
            f"takes this machine's Debian mirror instead"
        ) from error
    return str(image.id)


def _from_mirror(base: BaseSpec, client: Client, cache: Path, report: Callable[[str], None], *, refresh: bool) -> str:
    archive = cache / "bases" / f"{base.reference.rpartition(':')[2]}.tar"
    if refresh or not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            draft = Path(folder) / "image.tar"
            build_archive(base, draft, report=report)
            draft.replace(archive)
    with archive.open("rb") as file:
        client.images.load(file)
    found = base_id(base, client)
    if found is None:
        raise RequestError(f"{archive}: holds no {base.reference}; remove this file and try again")
    return found


def build_archive(base: BaseSpec, target: Path, *, report: Callable[[str], None]) -> str:
    """Make the base from this machine's Debian mirror, as an image archive; returns the image's id.

    Args:
        base: suite and packages.
        target: the archive to write; a root of the same size is kept beside it meanwhile.
        report: told what mmdebstrap says.

    Raises:
        RequestError: no mmdebstrap, no Debian source on this machine, or a package it does not have.
    """
    root = target.with_suffix(".root.tar")
    # A file and not an argument: a proxy's address may hold a password.
    options = target.with_suffix(".apt.conf")
    options.write_text(apt_transport(), encoding="utf-8")
    argv = mmdebstrap(base, sources=debian_sources(base.suite), options=options, target=root)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(base.source_date_epoch), "LC_ALL": "C.UTF-8"}
    report(f"making Debian {base.suite} with mmdebstrap, about a minute")
    try:
        process.follow(argv, on_line=_speak(report), env=environment)
    except CommandError as error:
        if error.code is None:
            raise NoBaseError(
                "mmdebstrap, which builds the base, is not installed; install it (apt-get install mmdebstrap), or ask for ENGINE=venv"
            ) from error
        wrong = [line for line in error.stderr.splitlines() if line.startswith("E: ")]
        raise NoBaseError(
            f"mmdebstrap could not build the base ({wrong[0] if wrong else error.last_line}); run `apt-get update` and try again"
        ) from error
    finally:
        options.unlink()
    labels = {
        "dlscale.base": "mirror",
        "dlscale.base.suite": base.suite,
        LABEL_PACKAGES: hashlib.sha256(_member(root, PACKAGE_LIST)).hexdigest(),
    }
    identifier = write_image(
        root=root,
        target=target,
        reference=base.reference,
        labels=labels,
        command=("python3",),
        created_s=base.source_date_epoch,
    )
    root.unlink()
    return identifier


def mmdebstrap(base: BaseSpec, *, sources: tuple[str, ...], options: Path, target: Path) -> tuple[str, ...]:
    """The command that makes the root.

    Args:
        base: suite and packages.
        sources: lines of sources.list.
        options: a file of apt options, for the way to the mirror; not kept in the root.
        target: the tar file to write.
    """
    list_packages = (
        f'mkdir -p "$1/{PACKAGE_LIST.rpartition("/")[0]}" && chroot "$1" dpkg-query --show '
        f"--showformat '${{Package}}=${{Version}}\\n' > \"$1/{PACKAGE_LIST}\""
    )
    remove = f'cd "$1" && rm -rf {" ".join(_REMOVED)}'
    return (
        *(
            "mmdebstrap",
            "--variant=minbase",
            "--architectures=amd64",
            "--format=tar",
            f"--include={','.join(base.packages)}",
        ),
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        *('--aptopt=Acquire::Languages "none"', f"--aptopt={options}"),
        # Nobody renews the signatures of a suite that gets no more updates; its lock says which packages it must give.
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


def _speak(report: Callable[[str], None]) -> Callable[[str], None]:
    def on_line(line: str) -> None:
        if line.startswith("I: ") and not line.startswith("I: running "):
            report(f"mmdebstrap: {line.removeprefix('I: ')}")

    return on_line


def write_image(
    *, root: Path, target: Path, reference: str, labels: Mapping[str, str], command: Sequence[str], created_s: int
) -> str:
    """Wrap a root file system into an image archive.

    Args:
        root: a tar file of the whole file system; becomes the one layer as it is.
        target: the archive to write.
        reference: name and tag that loading gives the image.
        labels: the image's labels.
        command: what runs when nothing else is asked for.
        created_s: date of the image, in seconds since 1970.

    Returns:
        The image's id, `sha256:...`: the same for the same arguments.
    """
    layer = sha256(root)
    created = datetime.fromtimestamp(created_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _json(
        {
            "architecture": "amd64",
            "config": {
                "Cmd": list(command),
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
    with tarfile.open(target, "w") as archive:
        for name, content in ((f"{identifier}.json", config), ("manifest.json", manifest)):
            archive.addfile(_entry(name, len(content), created_s), io.BytesIO(content))
        with root.open("rb") as file:
            archive.addfile(_entry(f"{layer}/layer.tar", root.stat().st_size, created_s), file)
    return f"sha256:{identifier}"


def _entry(name: str, size: int, created_s: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, created_s, 0o644
    return entry


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


TOOLS: Final = "bookworm-tools"


def tools_base() -> BaseSpec:
    """What images/versions.yaml makes it from; its `reference` names the image."""
    return load_images(SUITE_ROOT).base(TOOLS)


def ensure_tools(client: Client, *, cache: Path, report: Callable[[str], None]) -> str:
    """Have it in the engine and return its reference.

    Args:
        client: the engine.
        cache: bases made from a mirror are kept in its folder `bases`.
        report: told what is being done.

    Raises:
        RequestError: neither a registry nor a mirror gives it.
    """
    base = tools_base()
    ensure_base(base, client=client, root=SUITE_ROOT, cache=cache, report=report)
    return base.reference
