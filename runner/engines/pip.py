"""pip, as it is configured on this machine: proxies, certificates and mirrors stay the host's business. Installs and fetches what is locked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from runner.core.errors import RequestError
from runner.engines import process
from runner.engines.process import CommandError

_MISSING: Final = "No matching distribution found"


def pip(
    python: Path | str,
    do: Literal["install", "download"],
    words: Sequence[str],
    *,
    extra_index: str | None,
    about: str,
    report: Callable[[str], None],
    env: Mapping[str, str] | None = None,
) -> None:
    """Install or download packages with their locked hashes, by the pip of a Python, whose command `do` these words follow.

    The extra index is asked only if the machine's own sources lack something. `about` begins an error's sentence, `report` is told what is
    fetched, and `env` is the whole environment; the runner's own when None.

    Raises:
        RequestError: pip failed; the sentence says why and what to do.
    """
    quiet = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--require-hashes")
    command = [str(python), "-m", "pip", do, *quiet, *words]
    try:
        try:
            process.follow(command, on_line=_speak(report), env=env)
        except CommandError as error:
            if extra_index is None or _MISSING not in error.stderr:
                raise
            process.follow([*command, "--extra-index-url", extra_index], on_line=_speak(report), env=env)
    except CommandError as error:
        raise RequestError(f"{about}: {_explain(error)}") from error


def _explain(error: CommandError) -> str:
    """Why pip failed and what to do, in one sentence without the file's name."""
    missing = re.search(rf"{_MISSING} for (\S+?)(?:[\s;]|$)", error.stderr)
    if missing:
        return f"{missing[1]} is not in this machine's package sources; see `pip config list`, or fetch it into a folder named by PIP_FIND_LINKS"
    if "DO NOT MATCH THE HASHES" in error.stderr:
        wrong = re.search(r"^\s*(\S+==\S+|\S+) from ", error.stderr, re.MULTILINE)
        what = wrong[1] if wrong else "a package"
        return f"{what} is not the file that was locked (its hash differs); the package source or the download can't be trusted"
    if "No space left on device" in error.stderr:
        return "the disk is full; free some space, or set DLSCALE_CACHE and TMPDIR to directories that have more"
    if "Failed to establish a new connection" in error.stderr or "Temporary failure in name resolution" in error.stderr:
        return "no package index answers; connect this machine, or bring the images with `dlscale images archive` and `load`"
    return f"pip could not install it ({error.last_line}); see `pip config list` for the sources it asks"


def _speak(report: Callable[[str], None]) -> Callable[[str], None]:
    """Pass on the lines in which pip names a file it fetches, and its last step."""

    def on_line(line: str) -> None:
        words = line.split()
        if words[:1] in (["Downloading"], ["Using"], ["Processing"]):
            size = re.search(r"\(([\d.]+ [kMG]B)\)", line)
            wheel = next((word for word in words if word.endswith(".whl")), "")
            if wheel:
                report(f"fetching {wheel.rpartition('/')[2]}{f' ({size[1]})' if size else ''}")
        elif words[:2] == ["Installing", "collected"]:
            report(f"installing {len(words) - 3} packages")

    return on_line
