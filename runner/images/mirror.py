"""Where this machine's own apt gets Debian from: what a base is built from where no registry answers."""

from __future__ import annotations

import os
from typing import Final

from runner.engines import process
from runner.engines.process import CommandError
from runner.errors import NoBaseError

VARIABLE: Final = "DLSCALE_DEBIAN_MIRROR"


def debian_sources(suite: str) -> tuple[str, ...]:
    """Where this machine's apt gets a Debian suite, its updates and its security fixes from, as lines of sources.list.

    The variable DLSCALE_DEBIAN_MIRROR names one address instead, for a machine that is not Debian.

    Raises:
        NoBaseError: apt has no such source.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return (f"deb {chosen} {suite} main",)
    try:
        listed = process.run(
            [
                "apt-get",
                "indextargets",
                "--format",
                "$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)",
                "Created-By: Packages",
            ]
        )
    except CommandError:
        listed = ""
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    targets = [line.split(" ", 3) for line in listed.splitlines()]
    lines = {
        f"deb {uri} {release} main"
        for origin, component, release, uri in targets
        if (origin, component) == ("Debian", "main") and release in wanted
    }
    if not any(line.endswith(f" {suite} main") for line in lines):
        raise NoBaseError(
            f"apt on this machine knows no source of Debian {suite}; run `apt-get update`, or set {VARIABLE} to a mirror's address"
        )
    return tuple(sorted(lines))


def apt_transport() -> str:
    """This machine's proxies and certificates for apt, as apt writes them."""
    try:
        dump = process.run(["apt-config", "dump", "--no-empty"])
    except CommandError:
        return ""
    return "".join(
        f"{line}\n" for line in dump.splitlines() if line.startswith(("Acquire::http::", "Acquire::https::"))
    )
