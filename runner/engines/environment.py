"""Locked virtual environments, in which frameworks run without a container engine; and pip, as this machine has it configured.

The cache holds one environment per lock and Python version. A virtual environment can't be moved (its scripts contain its path),
so it is created in place; a marker, written last, shows that it is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from packaging.specifiers import SpecifierSet

from runner.core.cache import file_lock
from runner.core.errors import RequestError
from runner.engines import process
from runner.engines.process import CommandError

# The images' own Python, so that the same wheels run here as there.
PREFERRED: Final = "3.11"
_MINORS: Final = range(10, 20)
_COMPLETE: Final = "dlscale-complete"
_PROBE: Final = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
_PROBE_TIMEOUT_S: Final = 20.0
# Variables that make pip or Python write or search outside the environment.
_MISLEADING: Final = frozenset(
    ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_HASHES", "VIRTUAL_ENV")
)


@dataclass(frozen=True)
class Interpreter:
    """A Python that can create virtual environments."""

    path: Path
    version: str


def ensure_environment(
    *, lock: Path, requires_python: str, cache: Path, report: Callable[[str], None], extra_index: str | None = None
) -> Path:
    """Create a lock's virtual environment in the cache unless it exists, and return its Python.

    The extra index is used only if the machine's own package sources lack something.
    """
    interpreter = find_interpreter(requires_python)
    home = _home(lock, interpreter, cache)
    python = home / "bin" / "python"
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(
            home.with_suffix(".busy"), waiting=lambda: report("waiting for another run to create the same environment")
        ):
            if not (home / _COMPLETE).exists() or not python.exists():
                _make(home, interpreter, lock, extra_index, report)
    except OSError as error:
        raise RequestError(
            f"{home}: {error.strerror or error}; set DLSCALE_CACHE to a directory that can be written"
        ) from error
    return python


def environment_python(*, lock: Path, requires_python: str, cache: Path) -> Path:
    """The Python that `ensure_environment` will return; creates nothing."""
    return _home(lock, find_interpreter(requires_python), cache) / "bin" / "python"


def find_interpreter(requires_python: str) -> Interpreter:
    """Find a Python that runs, fits and can create virtual environments: on PATH, the images' own version first, else the runner's own.

    Each candidate is started to see that it runs: a version manager's shim is on PATH even for versions that it will not run.
    Raises RequestError if none fits.
    """
    fitting = SpecifierSet(requires_python)
    seen = []
    for path in _candidates(fitting):
        try:
            output = process.run([str(path), "-c", _PROBE], timeout_s=_PROBE_TIMEOUT_S)
        except (CommandError, OSError):
            continue
        version, _, executable = output.strip().partition(" ")
        if fitting.contains(version):
            return Interpreter(Path(executable), version)
        seen.append(version)
    found = f"found {', '.join(sorted(set(seen)))}" if seen else "found none"
    raise RequestError(
        f"no Python {requires_python} with its venv module is on PATH ({found}); "
        f"install one (Debian 12: apt-get install python3 python3-venv) or start a container engine"
    )


def _candidates(fitting: SpecifierSet) -> Iterator[Path]:
    """Programs to try, likeliest first: each name in PATH order, then the runner's own Python."""
    versions = [PREFERRED, *(f"3.{minor}" for minor in _MINORS)]
    names = [f"python{version}" for version in dict.fromkeys(versions) if fitting.contains(version)]
    for name in (*names, "python3"):
        yield from process.on_path(name)
    yield Path(sys.executable)


def _home(lock: Path, interpreter: Interpreter, cache: Path) -> Path:
    try:
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    except OSError as error:
        raise RequestError(f"{lock}: can't be read ({error.strerror}); restore it from the repository") from error
    return cache.absolute() / "environments" / f"{digest[:16]}-python{interpreter.version.replace('.', '')}"


def _make(
    home: Path, interpreter: Interpreter, lock: Path, extra_index: str | None, report: Callable[[str], None]
) -> None:
    """Create the environment at `home`, replacing whatever an interrupted run left there."""
    shutil.rmtree(home, ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    report(f"creating a virtual environment with Python {interpreter.version}")
    try:
        process.run([str(interpreter.path), "-m", "venv", str(home)], env=environment)
    except CommandError as error:
        raise RequestError(
            f"{interpreter.path} could not create a virtual environment ({error.last_line}); install its venv module"
        ) from error
    install = ["--no-deps", "--only-binary", ":all:", "-r", str(lock)]
    pip(
        home / "bin" / "python",
        "install",
        install,
        extra_index=extra_index,
        about=str(lock),
        report=report,
        env=environment,
    )
    (home / _COMPLETE).touch()


_MISSING: Final = "No matching distribution found"


def pip(
    python: Path | str,
    action: Literal["install", "download"],
    arguments: Sequence[str],
    *,
    extra_index: str | None,
    about: str,
    report: Callable[[str], None],
    env: Mapping[str, str] | None = None,
) -> None:
    """Install or download packages with locked hashes, by the pip of `python`.

    The extra index is used only if the machine's own sources lack something. `about` starts an error's sentence, `report` gets the progress,
    and `env` is the whole environment; the runner's own when None. Raises RequestError if pip fails.
    """
    options = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--require-hashes")
    command = [str(python), "-m", "pip", action, *options, *arguments]
    try:
        try:
            process.follow(command, on_line=_progress(report), env=env)
        except CommandError as error:
            if extra_index is None or _MISSING not in error.stderr:
                raise
            process.follow([*command, "--extra-index-url", extra_index], on_line=_progress(report), env=env)
    except CommandError as error:
        raise RequestError(f"{about}: {_explain(error)}") from error


def _explain(error: CommandError) -> str:
    """Why pip failed and what to do about it, in one sentence without the file's name."""
    missing = re.search(rf"{_MISSING} for (\S+?)(?:[\s;]|$)", error.stderr)
    if missing:
        return f"{missing[1]} is not in this machine's package sources; see `pip config list`, or download it into a folder that PIP_FIND_LINKS names"
    if "DO NOT MATCH THE HASHES" in error.stderr:
        wrong = re.search(r"^\s*(\S+==\S+|\S+) from ", error.stderr, re.MULTILINE)
        package = wrong[1] if wrong else "a package"
        return f"{package} is not the file that was locked (its hash differs); the package source or the download can't be trusted"
    if "No space left on device" in error.stderr:
        return "the disk is full; free some space, or set DLSCALE_CACHE and TMPDIR to directories that have more"
    if "Failed to establish a new connection" in error.stderr or "Temporary failure in name resolution" in error.stderr:
        return "no package index answers; connect this machine to the network, or bring the images with `dlscale images archive` and `load`"
    return f"pip could not install it ({error.last_line}); see `pip config list` for the sources that it uses"


def _progress(report: Callable[[str], None]) -> Callable[[str], None]:
    """Report the files that pip fetches, and its final install step."""

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
