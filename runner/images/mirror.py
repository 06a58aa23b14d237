"""Which Debian mirror this machine's own apt uses: the one that a base is built from where no registry answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runner.errors import RequestError

VARIABLE: Final = "DLSCALE_DEBIAN_MIRROR"


def find_mirror(suite: str, *, apt: Path = Path("/etc/apt")) -> str:
    """Address of the mirror that apt takes the suite's main component from, or of $DLSCALE_DEBIAN_MIRROR.

    Raises:
        RequestError: apt has no source for the suite, as on another distribution.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return chosen
    for uri, suites, components in (*_deb822(apt), *_one_line(apt)):
        if suite in suites and "main" in components:
            return uri
    raise RequestError(
        f"{apt} names no mirror of Debian {suite}; set {VARIABLE} to one, or let Docker reach its registry"
    )


def _deb822(apt: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Sources in stanzas of `Key: value` (sources.list(5))."""
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        for stanza in path.read_text(encoding="utf-8").split("\n\n"):
            pairs = (line.partition(":") for line in stanza.splitlines() if ":" in line and not line.startswith("#"))
            fields = {key.strip(): value.split() for key, _, value in pairs}
            if "deb" in fields.get("Types", []) and fields.get("Enabled") != ["no"]:
                for uri in fields.get("URIs", []):
                    yield uri, fields.get("Suites", []), fields.get("Components", [])


def _one_line(apt: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Sources of the form `deb [options] uri suite component...`."""
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))):
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            words = (
                line.partition("#")[0].partition("]")[2].split() if "[" in line else line.partition("#")[0].split()[1:]
            )
            if line.startswith("deb ") and len(words) > 1:
                yield words[0], [words[1]], words[2:]
