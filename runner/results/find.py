"""Finds runs on file, each once: in a folder, a run directory, folders of any depth, or a glob.

`resolve` turns a command-line argument into paths by the names of directories, which begin with the time, without reading records.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from runner.core.errors import RequestError, shorten
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunRecord
from runner.core.units import counted
from runner.results.store import RECORD, folders_under, read_record, run_directories

Run = tuple[Path, RunRecord]


@dataclass(frozen=True, kw_only=True)
class FoundRuns:
    """The runs of some run directories, and a sentence about each record that was skipped: it can't be read, or is a copy."""

    runs: tuple[Run, ...]
    skipped: tuple[str, ...]


def read_runs(directories: Iterable[Path]) -> FoundRuns:
    """Read the records of run directories, in their order.

    A run with several records, through copies or links, counts once: it was measured once.
    """
    skipped: list[str] = []
    read = list(read_each(directories, skipped))
    kept, copies = one_per_run([(directory, record.run_id) for directory, record in read])
    runs = tuple(run for run in read if run[0] in kept)
    return FoundRuns(runs=runs, skipped=(*skipped, *copies))


def read_each(directories: Iterable[Path], skipped: list[str]) -> Iterator[Run]:
    """Yield the records of run directories one by one; append a sentence about each unreadable one to `skipped`."""
    for directory in dict.fromkeys(directories):
        try:
            yield directory, read_record(directory)
        except RequestError as error:
            skipped.append(str(error))


def one_per_run(named: Sequence[tuple[Path, str]]) -> tuple[frozenset[Path], tuple[str, ...]]:
    """Choose one directory for each run id; return these, and a sentence about each other directory."""
    kept: dict[str, Path] = {}
    for directory, name in named:
        kept[name] = min(kept.get(name, directory), directory, key=lambda one: _original_first(one, name))
    return frozenset(kept.values()), tuple(
        f"{directory}: left out, it holds the same run as {kept[name]}, which counts once"
        for directory, name in named
        if directory != kept[name]
    )


def _original_first(directory: Path, name: str) -> tuple[bool, bool, int, Path]:
    """Sort key, lowest for the original directory of `bench`: it is named after the run, no link, and less deep than a backup."""
    return directory.name != name, directory.is_symlink(), len(directory.parts), directory


def records_under(folder: Path) -> Iterator[Run]:
    """Yield every readable record in the run directories of a folder, oldest first, each run once."""
    return iter(read_runs(run_directories(folder)).runs)


def runs_at(*places: str) -> FoundRuns:
    """Read every record at some places, in the order of their paths, without runs that did not complete.

    Places are run directories, folders with run directories anywhere below them, or globs. Raises RequestError for a place without runs.
    """
    return read_runs(directories_at(*places))


def directories_at(*places: str) -> list[Path]:
    """Return the run directories at some places, as in `runs_at`, each once and sorted by path. Raises RequestError for a place without runs."""
    return sorted({directory for place in places for directory in _directories(place)})


def _directories(place: str) -> Iterator[Path]:
    named = os.path.expanduser(place)  # noqa: PTH111 - keeps the name of an unknown user
    # An existing path is no pattern, whatever characters are in its name.
    found = [named] if os.path.exists(named) else glob.glob(named)  # noqa: PTH110, PTH207 - no error for an impossible path
    if not found:
        raise RequestError(
            f"{place} does not exist; name a run directory or a folder of them, for example results/MACHINE"
        )
    directories = [directory for each in found for directory in run_directories_below(Path(each))]
    if not directories:
        raise RequestError(
            f"{place} holds no {RECORD}, so no run ended there; name a run directory or a folder of them, for example results/MACHINE"
        )
    yield from directories


def run_directories_below(place: Path) -> list[Path]:
    """Return the run directories at or below a directory, sorted by the folders that contain them."""
    if (place / RECORD).is_file():
        return [place]
    return [directory for folder in folders_under(place) for directory in run_directories(folder)]


RESULTS: Final = SUITE_ROOT / "results"
"""Runs are found by name below this folder."""
_LAST: Final = re.compile(r"last(?:~(\d{1,9}))?", re.ASCII)
_ID: Final = re.compile(r"(\d{8}T\d{6}Z-[0-9a-f]{4})(-.*)?", re.ASCII)
_MAX_NAMED: Final = 2
"""At most so many runs are named in a sentence."""
_MIN_HINT: Final = 4
"""A word of at least so many characters suggests the runs whose ids contain it."""


def newest_first(place: Path | None = None) -> list[Path]:
    """Return the run directories at or below a place (default: `results/`), each run once, by the time in their names; reads no record."""
    found = [run for folder in folders_under(place or RESULTS) for run in run_directories(folder)]
    kept, _ = one_per_run([(run, run.name) for run in found])
    return sorted(kept, key=_time_and_number, reverse=True)


def _time_and_number(run: Path) -> tuple[str, str]:
    """Sort key: by time, and within a matrix by number, so that `r10` comes after `r9`. Renamed directories count as oldest."""
    match = _ID.fullmatch(run.name)
    own = (match[2] or "") if match else run.name
    return match[1] if match else "", re.sub(r"\d+", lambda digits: digits[0].zfill(9), own)


def by_matrix(run: Path) -> str:
    """Group the runs of one command."""
    match = _ID.fullmatch(run.name)
    return match[1] if match else run.name


def since(day: datetime, place: str | None) -> tuple[list[Path], list[Path]]:
    """Return the run directories at a place (default: `results/`) before a time, and those since, by the time in their names.

    Earlier runs are kept only if a later run's name differs from theirs in nothing but time and repeat.
    """
    begin = f"{day:%Y%m%dT%H%M%SZ}"
    runs = [run for run in newest_first(Path(place) if place else None) if _ID.fullmatch(run.name)]
    after = [run for run in runs if by_matrix(run) >= begin]
    cells = {_cell(run) for run in after}
    return [run for run in runs if by_matrix(run) < begin and _cell(run) in cells], after


def _cell(run: Path) -> str:
    return re.sub(r"-r\d+$", "", run.name.removeprefix(by_matrix(run)))


def repeats_of(run: Path) -> FoundRuns:
    """Read a run and its repeats: its siblings whose names differ only in the number of the repeat."""
    known = _ID.fullmatch(run.name)  # a renamed directory has no recognizable repeats
    siblings = [one for one in run_directories(run.parent) if known and _cell(one) == _cell(run)]
    return read_runs((run, *(one for one in siblings if by_matrix(one) == by_matrix(run))))


@dataclass(frozen=True)
class Unit:
    """What a name means: `noun` in sentences, the key that its run directories share, and whether a directory belongs to one."""

    noun: str
    key: Callable[[Path], str]
    holds: Callable[[Path], bool] = lambda _: True


RUN: Final = Unit("run", lambda run: run.name)
MATRIX: Final = Unit("matrix", by_matrix)
PASS: Final = Unit("profiling pass", RUN.key, lambda run: "-profile-" in run.name)


def resolve(word: str, unit: Unit = RUN) -> list[Path]:
    """Resolve a command-line argument to paths: a path or glob is returned unmodified, anything else names runs in `results/`.

    Args:
        word: a path or glob; `last`, or `last~2` for the second before it; a run's id or an unambiguous prefix of it.
        unit: what `last` counts and returns whole, a matrix with all its runs. A prefix is ambiguous if it matches several units.

    Raises:
        RequestError: the word matches no run, or several; the sentence names some.
    """
    last = _LAST.fullmatch(word)
    if not last and (os.path.exists(word) or "/" in word or glob.has_magic(word)):  # noqa: PTH110 - no error for an impossible path
        return [Path(word)]
    runs = [run for run in newest_first() if unit.holds(run)]
    groups: dict[str, list[Path]] = {}
    for run in runs:
        groups.setdefault(unit.key(run), []).append(run)
    if last:
        back = int(last[1] or 0)
        if back >= len(groups):
            raise RequestError(
                f"there is no {word}: {RESULTS} holds {counted(len(groups), unit.noun)}; `dlscale ls` lists the runs"
            )
        return list(groups.values())[back]
    found = [run for run in runs if run.name == word] or [run for run in runs if run.name.startswith(word)]
    if not found:
        names = [run.name for run in runs]
        inside = [name for name in names if word in name] if len(word) >= _MIN_HINT else []
        near = inside or difflib.get_close_matches(word, ["last", *names], _MAX_NAMED, 0.5)
        meant = f"did you mean {_listed(near)}?" if near else "`dlscale ls` lists them"
        raise RequestError(f"{shorten(word)} is neither a path nor the beginning of a run's id in {RESULTS}; {meant}")
    if len({unit.key(run) for run in found}) > 1:
        raise RequestError(
            f"{word} begins the ids of {counted(len(found))}: {_listed([r.name for r in found])}; name one"
        )
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
