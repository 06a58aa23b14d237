"""Where this machine's own apt gets Debian from: what a base is built from where no registry answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import Final

from runner.core.errors import NoBaseError
from runner.engines import process
from runner.engines.process import CommandError

VARIABLE: Final = "DLSCALE_DEBIAN_MIRROR"
_FORMAT: Final = "$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)"
_APT_HELPER: Final = "/usr/lib/apt/apt-helper"
# A suite itself, its updates between two point releases, its security fixes.
_PARTS: Final = ("", "-updates", "-security")


def debian_sources(suite: str) -> tuple[str, ...]:
    """Where this machine's apt gets a Debian suite, its updates and its security fixes from, as lines of sources.list.

    A suite that is not the machine's own comes from the same mirrors, which keep all of Debian's suites side by side.

    The variable DLSCALE_DEBIAN_MIRROR names one address instead, for a machine that is not Debian.

    Raises:
        NoBaseError: apt has no such source.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return (f"deb {chosen} {suite} main",)
    try:
        listed = process.run(["apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages"])
    except CommandError:
        listed = ""
    targets = [line.split(" ", 3) for line in listed.splitlines()]
    own = [(release, uri) for origin, component, release, uri in targets if (origin, component) == ("Debian", "main")]
    lines = _lines(own, suite) or _lines(_other_suite(own, suite), suite)
    if not lines:
        raise NoBaseError(
            f"apt on this machine knows no source of Debian {suite}; run `apt-get update`, or set {VARIABLE} to a mirror's address"
        )
    return lines


def _lines(sources: Iterable[tuple[str, str]], suite: str) -> tuple[str, ...]:
    """The sources of a suite, its updates and its security fixes; none without the suite itself."""
    wanted = {f"{suite}{part}" for part in _PARTS}
    found = {(release, uri) for release, uri in sources if release in wanted}
    return tuple(sorted(f"deb {uri} {release} main" for release, uri in found)) if suite in dict(found) else ()


def _other_suite(sources: Iterable[tuple[str, str]], suite: str) -> Iterator[tuple[str, str]]:
    """Where the mirrors of this machine's own suite keep another one, as far as they have it."""
    for release, uri in dict.fromkeys(sources):
        part = next((part for part in reversed(_PARTS) if release.endswith(part)), "")
        if "-" not in release.removesuffix(part) and _has(uri, f"{suite}{part}"):
            yield f"{suite}{part}", uri


def _has(uri: str, release: str) -> bool:
    """Whether a mirror has a release, asked by apt's own transport."""
    with tempfile.TemporaryDirectory(prefix="dlscale-mirror-") as folder:
        try:
            process.run([_APT_HELPER, "download-file", f"{uri}dists/{release}/InRelease", f"{folder}/InRelease"])
        except CommandError:
            return False
    return True


def apt_transport() -> str:
    """This machine's proxies and certificates for apt, as apt writes them."""
    try:
        dump = process.run(["apt-config", "dump", "--no-empty"])
    except CommandError:
        return ""
    return "".join(
        f"{line}\n" for line in dump.splitlines() if line.startswith(("Acquire::http::", "Acquire::https::"))
    )
