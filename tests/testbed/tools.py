"""The programs that a rig needs, one sentence that names the missing ones, and starting daemons."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from runner.core.errors import RequestError

# Programs and their Debian packages.
PACKAGES: Final = {
    "containerd": "containerd",
    "dockerd": "docker.io",
    "hostname": "hostname",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "tc": "iproute2",
    "umount": "mount",
    "unshare": "util-linux",
}
_SYSTEM: Final = "/usr/local/sbin:/usr/sbin:/sbin"  # not on the PATH that `su` leaves


@cache
def tool(name: str) -> str:
    """Path of a program; its bare name if it is missing, which `refuse_unfit` has ruled out."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM}") or name


def refuse_unfit() -> None:
    """Refuse users and machines that can't run a rig."""
    if os.geteuid() != 0:
        raise RequestError("a rig is made of network namespaces and engines, which need root; type it after sudo")
    missing = [name for name in PACKAGES if "/" not in tool(name)]
    if missing:
        packages = " ".join(sorted({PACKAGES[name] for name in missing}))
        raise RequestError(
            f"a rig needs {', '.join(missing)}, not found on this machine; install them (Debian: apt-get install {packages})"
        )


def start_daemon(argv: Sequence[str], *, log: Path) -> None:
    """Start a process that outlives this one and appends its output to `log`.

    It gets its own session and init as parent, so that neither Ctrl-C nor this process' exit affects it; callers must be
    able to find it again by its arguments.
    """
    with log.open("ab") as file:
        subprocess.run(
            [tool("setsid"), "--fork", *argv],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd="/",  # a daemon must not keep the current directory in use
            check=False,
        )
