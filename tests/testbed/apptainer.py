"""Apptainer for machines without a package of it: a Debian sid root with Apptainer, and a program `apptainer` that enters that root.

The root is kept between sessions. For an ordinary user the program creates a user namespace, because Apptainer refuses to run in a chroot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from runner.core.cache import file_lock
from runner.core.container_spec import IMAGE_USER
from runner.core.errors import RequestError
from runner.images.base import debian_sources

KEPT = Path(tempfile.gettempdir()) / "dlscale-apptainer"
_PACKAGES = "apptainer,ca-certificates,squashfs-tools,squashfuse,fuse2fs,fuse-overlayfs,fakeroot"
_PROGRAM = """\
#!/bin/bash
user=()
[ "$1" = build ] || user=(--unshare-user --uid "$(id -u)" --gid "$(id -g)")
exec bwrap "${{user[@]}}" --bind {root} / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys {binds} -- /usr/bin/apptainer "$@"
"""


def environment(checkout: Path) -> dict[str, str]:
    """Environment to start a checkout's suite with: an `apptainer` on PATH, and a separate cache that an image's user can access.

    RequestError: Apptainer can't be provided here.
    """
    path = f"{program(checkout, KEPT)}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DLSCALE_CACHE": str(KEPT / "cache")}


def program(*shared: Path) -> Path:
    """Return the folder of an `apptainer` program that sees these directories: the machine's own, if installed."""
    if own := shutil.which("apptainer"):
        return Path(own).parent
    for tool, package in (("mmdebstrap", "mmdebstrap"), ("bwrap", "bubblewrap")):
        if shutil.which(tool) is None:
            raise RequestError(f"Apptainer needs {package} to run in its own root; type apt-get install {package}")
    KEPT.mkdir(mode=0o755, exist_ok=True)
    root, folder = KEPT / "root", KEPT / "bin"
    with file_lock(KEPT / "busy", waiting=lambda: None):
        if not root.exists():
            _make(root)
        for path in shared:
            (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        binds = " ".join(f"--bind {path} {path}" for path in shared)
        (folder / "apptainer").write_text(_PROGRAM.format(root=root, binds=binds), encoding="utf-8")
        (folder / "apptainer").chmod(0o755)
    return folder


def _make(root: Path) -> None:
    draft = root.with_suffix(".draft")
    options = ("--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"', f"--include={_PACKAGES}")
    done = subprocess.run(
        ("mmdebstrap", "--quiet", *options, "sid", str(draft), *debian_sources("sid")), capture_output=True, text=True
    )
    if done.returncode:
        raise RequestError(f"mmdebstrap could not make a root of Debian sid: {done.stderr.strip().splitlines()[-1]}")
    with (draft / "etc/passwd").open("a", encoding="utf-8") as passwd:
        passwd.write(f"bench:x:{IMAGE_USER}::/tmp:/bin/bash\n")
    for name in ("hosts", "resolv.conf", "localtime"):
        (draft / "etc" / name).touch()
    draft.rename(root)
