"""The Debian system under every image: a registry's by digest or, where no registry answers, the same suite from a mirror.

From a mirror it is made by mmdebstrap with all file times fixed, and wrapped into an image whose every byte follows from its
root, so that the same packages give the same image id twice.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.engines import process
from runner.engines.process import CommandError
from runner.errors import RequestError
from runner.images.mirror import find_mirror
from runner.images.versions import BaseSpec
from runner.images.wheelhouse import sha256

if TYPE_CHECKING:
    from docker import DockerClient

# What differs from one build or machine to the next, or would tell where the packages came from.
_LEFT_OUT: Final = (
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/apt/auth.conf.d",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/lib/dbus/machine-id",
    "var/log",
)
_PACKAGES: Final = "/usr/share/dlscale/packages.txt"
_LIST_PACKAGES: Final = f'mkdir -p "$1/usr/share/dlscale" && chroot "$1" dpkg-query --show --showformat "\\${{Package}}=\\${{Version}}\\n" > "$1{_PACKAGES}"'


def ensure_base(
    base: BaseSpec, *, client: DockerClient, dockerfile: Path, cache: Path, report: Callable[[str], None]
) -> str:
    """Have the base in the engine and return its image id.

    Args:
        base: what it is made from.
        client: the engine.
        dockerfile: the rendered recipe where a registry answers.
        cache: bases made from a mirror are kept in its folder `bases`.
        report: told what is being done.

    Raises:
        RequestError: neither a registry nor a mirror gives one.
    """
    from docker.errors import APIError, BuildError, ImageNotFound  # noqa: PLC0415 - loaded with the client

    try:
        return str(client.images.get(base.reference).id)
    except ImageNotFound:
        pass
    try:
        report(f"pulling {base.registry.image} by digest")
        client.images.pull(base.registry.pinned)
        report("building the base")
        image, _ = client.images.build(
            fileobj=io.BytesIO(dockerfile.read_bytes()), tag=base.reference, rm=True, forcerm=True
        )
        return str(image.id)
    except (APIError, BuildError) as error:
        report(
            f"no registry answers ({str(error)[:120]}); making the same Debian {base.suite} from this machine's mirror"
        )
    archive = archive_from_mirror(base, cache=cache, report=report)
    with archive.open("rb") as file:
        return str(client.images.load(file)[0].id)


def archive_from_mirror(base: BaseSpec, *, cache: Path, report: Callable[[str], None]) -> Path:
    """Make the base as an image archive, unless the cache has it.

    Raises:
        RequestError: mmdebstrap or a mirror is missing, or a package can't be had.
    """
    archive = cache / "bases" / f"{base.reference.rpartition(':')[2]}.tar"
    if archive.exists():
        return archive
    if shutil.which("mmdebstrap") is None:
        raise RequestError(
            "no registry answers and mmdebstrap is not installed; type `apt-get install mmdebstrap`, or ask for ENGINE=venv"
        )
    mirror = find_mirror(base.suite)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        root = Path(folder) / "root.tar"
        report(f"making Debian {base.suite} with mmdebstrap (about a minute)")
        try:
            process.run(
                mmdebstrap_argv(base, mirror=mirror, root=root),
                env={**os.environ, "SOURCE_DATE_EPOCH": str(base.source_date_epoch)},
            )
        except CommandError as error:
            raise RequestError(
                f"mmdebstrap could not make Debian {base.suite} ({error.last_line}); see /etc/apt for the mirror"
            ) from error
        draft = Path(folder) / "image.tar"
        wrap(base, root=root, archive=draft)
        draft.replace(archive)
    return archive


def mmdebstrap_argv(base: BaseSpec, *, mirror: str, root: Path) -> tuple[str, ...]:
    """The command that makes the root file system."""
    return (
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={','.join(base.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        # The hooks' text is fixed; mmdebstrap hands them the root as $1.
        f"--customize-hook={_LIST_PACKAGES}",
        "--customize-hook=" + "rm -rf " + " ".join(f'"$1"/{path}' for path in _LEFT_OUT),
        '--customize-hook=mkdir -p "$1"/var/log "$1"/var/cache/apt/archives/partial "$1"/var/lib/apt/lists/partial "$1"/etc/apt/sources.list.d',
        "--format=tar",
        base.suite,
        str(root),
        mirror,
    )


def wrap(base: BaseSpec, *, root: Path, archive: Path) -> None:
    """Write an image archive (`docker load`) around a root file system; its id follows from the root alone."""
    layer = sha256(root)
    created = datetime.fromtimestamp(base.source_date_epoch, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": created,
            "config": {"Cmd": ["python3"], "Labels": {"dlscale.base": "mirror", "dlscale.base.suite": base.suite}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
            "history": [{"created": created, "created_by": f"mmdebstrap {base.suite} {' '.join(base.packages)}"}],
        },
        sort_keys=True,
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [base.reference], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for member, content in ((name, config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("layer.tar")
        info.size = root.stat().st_size
        with root.open("rb") as file:
            tar.addfile(info, file)
